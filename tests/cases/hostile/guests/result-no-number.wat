;; Attacks: the agent, by a number that JSON does not have.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
;; wit: real
(func $act (param i32 i32) (result f64)
  (f64.const nan))
