;; Attacks: the host, by asking without end for what is refused.
;; Must: end at its number of host calls.
;; expect: status=refused code=effect_not_permitted refund=0
(func $act (param i32 i32) (result i32)
  (loop $again
    (call $perform (i32.const 112) (i32.const 4) (i32.const 0) (i32.const 0) (global.get $answer))
    (br $again))
  unreachable)
