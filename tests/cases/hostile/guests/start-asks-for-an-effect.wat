;; Attacks: the order of steps, by an effect before the tool is called.
;; Must: trap or be refused; nothing is sent.
;; expect: status=refused refund=0
(start $init)
(func $init (call $look) (call $refund))
(func $act (param i32 i32) (result i32)
  unreachable)
