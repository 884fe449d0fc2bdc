;; Attacks: the clock, by copies over each other.
;; Must: end at its time.
;; expect: status=refused code=tool_limit limit=wall-time refund=0
;; limits: wall-time = "400ms"; memory = "16MiB"
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 240)))
  (loop $again
    (memory.copy (i32.const 65537) (i32.const 65536) (i32.const 15000000))
    (br $again))
  unreachable)
