;; Attacks: the log, by printing without end.
;; Must: keep what the log holds and end at the time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(import "wasi:cli/stdout@0.2.6" "get-stdout" (func $stdout (result i32)))
(import "wasi:io/streams@0.2.6" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
(func $act (param i32 i32) (result i32)
  (local $out i32)
  (local.set $out (call $stdout))
  (loop $again
    (call $write (local.get $out) (i32.const 0) (i32.const 65536) (global.get $answer))
    (br $again))
  unreachable)
