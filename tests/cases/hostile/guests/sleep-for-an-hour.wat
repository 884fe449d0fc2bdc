;; Attacks: the wall time, by waiting and not by working.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $timer (param i64) (result i32)))
(import "wasi:io/poll@0.2.6" "[method]pollable.block" (func $block (param i32)))
(func $act (param i32 i32) (result i32)
  (call $block (call $timer (i64.const 3600000000000)))
  (call $done))
