;; Attacks: the wall time, after the result was read and its effect is done.
;; Must: end at its time; the effect is told.
;; expect: status=done refund=1
;; limits: wall-time = "3s"
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
(func (export "cabi_post_test:attack/tools@0.1.0#act") (param i32)
  (loop $again (br $again)))
