;; Attacks: the wall time, to have a done effect told as failed.
;; Must: tell the effect.
;; expect: status=done refund=1
;; limits: wall-time = "3s"
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (loop $again (br $again))
  unreachable)
