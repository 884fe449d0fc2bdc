;; Attacks: the call, by a trap after the result was read.
;; Must: tell the effect.
;; expect: status=done refund=1
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
(func (export "cabi_post_test:attack/tools@0.1.0#act") (param i32)
  unreachable)
