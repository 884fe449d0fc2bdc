;; Attacks: the host, by a list whose length overflows.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 0xffffffff) (global.get $answer))
  (call $done))
