;; Attacks: the host, by a surrogate as a letter.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
;; wit: letter
(func $act (param i32 i32) (result i32)
  (i32.const 0xd800))
