;; Attacks: the door, by another one.
;; Must: not load.
;; expect: load=refused says="opens network connections past the effect door"
(import "wasi:sockets/instance-network@0.2.6" "instance-network" (func $door (result i32)))
(func $act (param i32 i32) (result i32)
  (drop (call $door))
  (call $done))
