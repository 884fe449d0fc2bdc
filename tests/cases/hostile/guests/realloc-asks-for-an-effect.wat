;; Attacks: the order of steps, by an effect while the host writes an answer.
;; Must: trap before anything is sent.
;; expect: status=refused code=tool_failed refund=0
;; uses: reads acts
(global $looked (mut i32) (i32.const 0))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (if (global.get $looked) (then (call $refund)))
  (call $allocate (local.get 3)))
(func $act (param i32 i32) (result i32)
  (global.set $looked (i32.const 1))
  (call $look)
  (call $refund)
  (call $done))
