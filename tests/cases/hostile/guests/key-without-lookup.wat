;; Attacks: the key, by asking for the effect before its source was read.
;; Must: be refused; nothing is sent.
;; expect: status=refused code=invalid_arguments refund=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
