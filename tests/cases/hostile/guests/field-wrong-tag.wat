;; Attacks: the host, by a value of a kind that is not.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
(data (i32.const 88) "\07")
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
