;; Attacks: the call, by a trap while the host writes the answer of a done effect.
;; Must: tell the effect.
;; expect: status=done refund=1
;; uses: reads acts
(global $asked (mut i32) (i32.const 0))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (if (global.get $asked) (then unreachable))
  (call $allocate (local.get 3)))
(func $act (param i32 i32) (result i32)
  (call $look)
  (global.set $asked (i32.const 1))
  (call $refund)
  (call $done))
