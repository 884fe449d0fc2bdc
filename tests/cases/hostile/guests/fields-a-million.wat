;; Attacks: the host's memory, by a million fields.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=host-call-bytes refund=0
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 380)))
  (call $perform (i32.const 32) (i32.const 13) (i32.const 65536) (i32.const 1000000) (global.get $answer))
  (call $done))
