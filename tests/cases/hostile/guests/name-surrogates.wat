;; Attacks: the host, by half a character.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
(data (i32.const 4096) "\ed\a0\80")
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 4096) (i32.const 3) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
