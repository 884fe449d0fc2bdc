;; Attacks: the tenant, by a field of that name.
;; Must: be refused; nothing is sent.
;; expect: status=refused code=invalid_arguments refund=0
(data (i32.const 176) "\d0\00\00\00\06")
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 176) (i32.const 1) (global.get $answer))
  (call $done))
