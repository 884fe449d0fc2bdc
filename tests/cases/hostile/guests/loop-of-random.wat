;; Attacks: the host, by asking for random bytes without end.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(import "wasi:random/random@0.2.6" "get-random-bytes" (func $random (param i64 i32)))
(func $act (param i32 i32) (result i32)
  (local $free i32)
  (local.set $free (global.get $free))
  (loop $again
    (global.set $free (local.get $free))
    (call $random (i64.const 4096) (global.get $answer))
    (br $again))
  unreachable)
