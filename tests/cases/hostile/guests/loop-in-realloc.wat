;; Attacks: the wall time, while the host writes an argument.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; uses: reads acts
;; limits: wall-time = "400ms"
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (loop $again (br $again))
  unreachable)
(func $act (param i32 i32) (result i32)
  (call $done))
