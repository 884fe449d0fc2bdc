;; Attacks: the order of steps, by an effect after the result was read.
;; Must: trap before anything is sent.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $done))
(func (export "cabi_post_test:attack/tools@0.1.0#act") (param i32)
  (call $refund))
