;; Attacks: the ledger, by a request that is larger than may be kept.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=request refund=0
;; limits: request = "8KiB"
(data (i32.const 100) "\00\40\00\00")
(func $act (param i32 i32) (result i32)
  (memory.fill (i32.const 8192) (i32.const 97) (i32.const 16384))
  (i32.store (i32.const 96) (i32.const 8192))
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
