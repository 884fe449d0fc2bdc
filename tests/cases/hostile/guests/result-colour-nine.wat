;; Attacks: the host, by an enum case that is not.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
;; wit: colour
(func $act (param i32 i32) (result i32)
  (i32.const 9))
