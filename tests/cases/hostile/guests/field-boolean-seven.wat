;; Attacks: the host, by a truth that is neither.
;; Must: be read as any truth; a reason is no truth.
;; expect: status=refused code=invalid_arguments refund=0
(data (i32.const 88) "\03\00\00\00\00\00\00\00\07")
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
