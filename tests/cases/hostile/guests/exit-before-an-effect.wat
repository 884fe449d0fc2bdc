;; Attacks: the call, by `exit(0)` as if all were well.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(import "wasi:cli/exit@0.2.6" "exit" (func $exit (param i32)))
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $exit (i32.const 0))
  (call $done))
