;; Attacks: the call, by a trap behind a done effect.
;; Must: tell the effect.
;; expect: status=done refund=1
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  unreachable)
