;; Attacks: the wall time, before the tool is called at all.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"
(start $init)
(func $init (loop $again (br $again)))
(func $act (param i32 i32) (result i32)
  (call $done))
