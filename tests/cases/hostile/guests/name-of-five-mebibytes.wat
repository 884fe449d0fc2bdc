;; Attacks: the host's memory, by the name of an operation.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=host-call-bytes refund=0
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 90)))
  (call $perform (i32.const 65536) (i32.const 5242880) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
