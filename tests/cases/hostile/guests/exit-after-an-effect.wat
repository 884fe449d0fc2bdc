;; Attacks: the call, by `exit(1)` behind a done effect.
;; Must: tell the effect.
;; expect: status=done refund=1
(import "wasi:cli/exit@0.2.6" "exit" (func $exit (param i32)))
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $exit (i32.const 1))
  (call $done))
