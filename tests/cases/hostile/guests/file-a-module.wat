;; Attacks: the host, by a core module.
;; Must: not load.
;; expect: load=refused says="a core module"
;; make: module
(func $act (param i32 i32) (result i32)
  (call $done))
