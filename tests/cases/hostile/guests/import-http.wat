;; Attacks: the door, by another one.
;; Must: not load.
;; expect: load=refused says="sends requests past the effect door"
(import "wasi:http/outgoing-handler@0.2.6" "handle" (func $door (param i32) (result i32)))
(func $act (param i32 i32) (result i32)
  (drop (call $door (i32.const 0)))
  (call $done))
