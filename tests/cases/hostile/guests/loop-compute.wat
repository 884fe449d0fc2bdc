;; Attacks: the wall time, by computing.
;; Must: end at its time; nothing is sent.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(func $act (param i32 i32) (result i32)
  (loop $again (br $again))
  unreachable)
