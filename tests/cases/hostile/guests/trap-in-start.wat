;; Attacks: the call, by a trap before the tool is called.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0 asked=0
(start $init)
(func $init unreachable)
(func $act (param i32 i32) (result i32)
  (call $done))
