;; Attacks: the host, by waiting for one timer a thousand times at once.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $subscribe (param i64) (result i32)))
(import "wasi:io/poll@0.2.6" "poll" (func $poll (param i32 i32 i32)))
(func $act (param i32 i32) (result i32)
  (local $timer i32) (local $i i32)
  (local.set $timer (call $subscribe (i64.const 3600000000000)))
  (loop $more
    (i32.store (i32.add (i32.const 4096) (i32.shl (local.get $i) (i32.const 2))) (local.get $timer))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $more (i32.lt_u (local.get $i) (i32.const 900))))
  (call $poll (i32.const 4096) (i32.const 900) (global.get $answer))
  (call $done))
