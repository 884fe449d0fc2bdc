;; What a guest that acts imports beside.
(import "oncegate:effect/effect@0.1.0" "perform" (func $perform (param i32 i32 i32 i32 i32)))
(func $refund
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer)))
