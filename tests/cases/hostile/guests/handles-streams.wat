;; Attacks: the host, by streams that are never dropped.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=handles refund=0
(import "wasi:cli/stderr@0.2.6" "get-stderr" (func $stderr (result i32)))
(func $act (param i32 i32) (result i32)
  (loop $again (drop (call $stderr)) (br $again))
  unreachable)
