;; Attacks: the key, by a copy that names another return.
;; Must: be refused; nothing is sent.
;; expect: status=refused code=invalid_arguments refund=0
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 176) (i32.const 1) (global.get $answer))
  (call $done))
