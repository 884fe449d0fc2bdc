;; Attacks: the host, by one field more than may be given.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=fields refund=0
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 8192) (i32.const 257) (global.get $answer))
  (call $done))
