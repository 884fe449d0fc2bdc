;; Attacks: itself, by an allocator that gives the same place twice.
;; Must: spoil nothing but its own memory: keys are the host's.
;; expect: status=done refund=1
;; uses: reads acts
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (i32.const 8192))
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
