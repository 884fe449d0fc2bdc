;; Attacks: the call, by a table entry that is not there.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(table 1 funcref)
(type $none (func))
(func $act (param i32 i32) (result i32)
  (call_indirect (type $none) (i32.const 0))
  (call $done))
