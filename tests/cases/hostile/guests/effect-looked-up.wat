;; Attacks: the class of an operation, by looking an effect up.
;; Must: be refused; nothing is sent.
;; expect: status=refused code=effect_not_permitted refund=0 asked=0
(func $act (param i32 i32) (result i32)
  (call $fetch (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  unreachable)
