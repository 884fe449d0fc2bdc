;; Attacks: the class of the tool, by the door that its component has.
;; Must: trap; it is on record.
;; expect: status=refused code=effect_not_permitted refund=0
;; contract: reads
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
