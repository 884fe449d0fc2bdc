;; Attacks: the memory, before the tool is called at all.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=memory refund=0
;; memory: 200
;; limits: memory = "8MiB"
(func $act (param i32 i32) (result i32)
  (call $done))
