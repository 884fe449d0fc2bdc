;; Attacks: the log, by 64 MB and then a good deed.
;; Must: keep what the log holds; the deed is done.
;; expect: status=done refund=1
(import "wasi:cli/stdout@0.2.6" "get-stdout" (func $stdout (result i32)))
(import "wasi:io/streams@0.2.6" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
(func $act (param i32 i32) (result i32)
  (local $out i32) (local $i i32)
  (local.set $out (call $stdout))
  (loop $again
    (call $write (local.get $out) (i32.const 0) (i32.const 65536) (global.get $answer))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $again (i32.lt_u (local.get $i) (i32.const 1000))))
  (call $look)
  (call $refund)
  (call $done))
