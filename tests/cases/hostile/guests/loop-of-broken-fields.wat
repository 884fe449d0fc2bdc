;; Attacks: the host, by values without end that are too long to be looked at.
;; Must: end at its number of host calls.
;; expect: status=refused code=tool_limit limit=field refund=0
;; limits: field = 100
(func $act (param i32 i32) (result i32)
  (i32.store (i32.const 100) (i32.const 101))
  (loop $again
    (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
    (br $again))
  unreachable)
