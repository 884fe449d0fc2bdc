;; Attacks: the agent, by a text of two megabytes.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=result refund=0
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 40)))
  (memory.fill (i32.const 65536) (i32.const 97) (i32.const 2000000))
  (drop (call $say (i32.const 65536) (i32.const 2000000)))
  (i32.store8 (i32.const 2048) (i32.const 0))
  (i32.const 2048))
