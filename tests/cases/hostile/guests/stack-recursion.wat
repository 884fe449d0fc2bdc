;; Attacks: the stack.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=stack refund=0
(func $deeper (param i64) (result i64)
  (i64.add (i64.const 1) (call $deeper (i64.add (local.get 0) (i64.const 1)))))
(func $act (param i32 i32) (result i32)
  (drop (call $deeper (i64.const 0)))
  (call $done))
