;; Attacks: the host, by asking for facts without end.
;; Must: end at its number of host calls.
;; expect: status=refused code=tool_limit limit=host-calls refund=0
(func $act (param i32 i32) (result i32)
  (loop $again
    (call $get (i32.const 208) (i32.const 6) (global.get $answer))
    (br $again))
  unreachable)
