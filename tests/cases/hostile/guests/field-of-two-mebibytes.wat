;; Attacks: the ledger, by a long value.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=field refund=0
(data (i32.const 96) "\00\00\01\00\00\00\20\00")
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 40)))
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
