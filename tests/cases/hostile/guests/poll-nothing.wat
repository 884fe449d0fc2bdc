;; Attacks: the host, by waiting for nothing at all.
;; Must: fail as any other trap.
;; expect: status=refused code=tool_failed refund=0
(import "wasi:io/poll@0.2.6" "poll" (func $poll (param i32 i32 i32)))
(func $act (param i32 i32) (result i32)
  (call $poll (i32.const 4096) (i32.const 0) (global.get $answer))
  (call $done))
