;; Attacks: the agent, by a text that is none.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(data (i32.const 4096) "\ff\fe\c0\af")
(func $act (param i32 i32) (result i32)
  (drop (call $say (i32.const 4096) (i32.const 4)))
  (i32.store8 (i32.const 2048) (i32.const 0))
  (i32.const 2048))
