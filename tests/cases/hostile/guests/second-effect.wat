;; Attacks: the number of effects.
;; Must: do one; the other is not sent.
;; expect: status=done refund=1 note=0
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $perform (i32.const 128) (i32.const 10) (i32.const 0) (i32.const 0) (global.get $answer))
  (call $done))
