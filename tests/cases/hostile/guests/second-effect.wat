;; Attacks: the number of effects.
;; Must: do one; the other is not sent.
;; expect: status=done refund=1 note=0
(data (i32.const 4096) "text")
(data (i32.const 4104) "\00\10\00\00\04")
(data (i32.const 4120) "\40\00\00\00\09")
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $perform (i32.const 128) (i32.const 10) (i32.const 4104) (i32.const 1) (global.get $answer))
  (call $done))
