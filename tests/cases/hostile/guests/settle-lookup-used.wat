;; Attacks: the host's own lookups, by name.
;; Must: be refused.
;; expect: status=refused code=effect_not_permitted refund=0 asked=0
(func $act (param i32 i32) (result i32)
  (call $fetch (i32.const 224) (i32.const 11) (i32.const 0) (i32.const 0) (global.get $answer))
  unreachable)
