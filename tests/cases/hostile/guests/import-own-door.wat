;; Attacks: the door, by another one.
;; Must: not load.
;; expect: load=refused says="unknown"
(import "back:door/way@1.0.0" "open" (func $door))
(func $act (param i32 i32) (result i32)
  (call $door)
  (call $done))
