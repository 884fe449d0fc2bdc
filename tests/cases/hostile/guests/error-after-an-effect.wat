;; Attacks: the status, by an error behind a done effect.
;; Must: tell the effect.
;; expect: status=done refund=1
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (drop (call $say (i32.const 112) (i32.const 4)))
  (i32.store8 (i32.const 2048) (i32.const 1))
  (i32.const 2048))
