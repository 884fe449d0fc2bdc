;; Attacks: the host, by a variant case that is not.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
;; wit: shape
(func $act (param i32 i32) (result i32)
  (i32.store8 (i32.const 2048) (i32.const 5))
  (i32.const 2048))
