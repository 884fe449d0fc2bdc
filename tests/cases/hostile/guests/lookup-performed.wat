;; Attacks: the class of an operation, by performing a lookup.
;; Must: be refused.
;; expect: status=refused code=effect_not_permitted refund=0 asked=0
(func $act (param i32 i32) (result i32)
  (call $perform (i32.const 16) (i32.const 10) (i32.const 0) (i32.const 0) (global.get $answer))
  (call $done))
