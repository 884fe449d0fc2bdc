;; Attacks: the provider, by asking without end.
;; Must: get so many answers and no more; then end.
;; expect: status=refused code=tool_limit limit=lookups refund=0 asked<=5
;; limits: lookups = 5; host-calls = 50
(func $act (param i32 i32) (result i32)
  (loop $again (call $look) (br $again))
  unreachable)
