;; Attacks: other callers' facts, by a name that its contract does not declare.
;; Must: hear nothing.
;; expect: status=done refund=0 result=none
(data (i32.const 4096) "none")
(func $act (param i32 i32) (result i32)
  (call $get (i32.const 208) (i32.const 6) (global.get $answer))
  (if (i32.load8_u (global.get $answer))
    (then (return (call $say (i32.load (i32.const 1028)) (i32.load (i32.const 1032))))))
  (call $say (i32.const 4096) (i32.const 4)))
