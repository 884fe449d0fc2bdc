;; Attacks: the host, by a result that is neither ok nor err.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (drop (call $say (i32.const 112) (i32.const 4)))
  (i32.store8 (i32.const 2048) (i32.const 7))
  (i32.const 2048))
