;; Attacks: the host, by a truth that is neither.
;; Must: be true, as the canonical form has it.
;; expect: status=done refund=0 result=true
;; wit: truth
(func $act (param i32 i32) (result i32)
  (i32.const 7))
