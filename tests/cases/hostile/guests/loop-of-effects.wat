;; Attacks: the provider, by asking for one effect without end.
;; Must: do it once; then end.
;; expect: status=done refund=1
;; limits: lookups = 5; host-calls = 50
(func $act (param i32 i32) (result i32)
  (call $look)
  (loop $again (call $refund) (br $again))
  unreachable)
