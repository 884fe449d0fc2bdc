;; Attacks: the host, by a letter that no text has.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
;; wit: letter
(func $act (param i32 i32) (result i32)
  (i32.const 0x110000))
