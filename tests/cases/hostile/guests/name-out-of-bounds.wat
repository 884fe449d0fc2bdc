;; Attacks: the host, by a text behind the end of memory.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 0xfffffff0) (i32.const 8) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
