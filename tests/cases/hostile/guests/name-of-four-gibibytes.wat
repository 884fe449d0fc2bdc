;; Attacks: the host, by a text that says it has 4 GiB.
;; Must: trap; nothing is copied.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 32) (i32.const 0xffffffff) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
