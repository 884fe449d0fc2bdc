;; Attacks: nothing: what others are compared with.
;; Must: do one refund.
;; expect: status=done refund=1 result=said
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
