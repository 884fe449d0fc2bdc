;; Attacks: the host, by a list at an odd place.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 81) (i32.const 1) (global.get $answer))
  (call $done))
