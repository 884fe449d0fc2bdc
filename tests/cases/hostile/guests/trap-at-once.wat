;; Attacks: the call, by a trap.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0 asked=0
(func $act (param i32 i32) (result i32)
  unreachable)
