;; What a guest that reads imports.
(import "oncegate:effect/lookup@0.1.0" "fetch" (func $fetch (param i32 i32 i32 i32 i32)))
(import "oncegate:effect/context@0.1.0" "get" (func $get (param i32 i32 i32)))
(func $look
  (call $fetch (i32.const 16) (i32.const 10) (i32.const 0) (i32.const 0) (global.get $answer)))
