;; Attacks: the host, by all random bytes that a number can say.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=random refund=0
(import "wasi:random/random@0.2.6" "get-random-bytes" (func $random (param i64 i32)))
(func $act (param i32 i32) (result i32)
  (call $random (i64.const -1) (global.get $answer))
  (call $done))
