;; Attacks: the call, by arithmetic.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (i32.div_u (i32.const 1) (i32.const 0)))
