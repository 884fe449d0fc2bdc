;; Attacks: the host, by timers that are never dropped.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=handles refund=0
(import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $timer (param i64) (result i32)))
(func $act (param i32 i32) (result i32)
  (loop $again (drop (call $timer (i64.const 1))) (br $again))
  unreachable)
