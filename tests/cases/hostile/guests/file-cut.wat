;; Attacks: the host, by half a component.
;; Must: not load.
;; expect: load=refused says="the component"
;; make: cut 300
(func $act (param i32 i32) (result i32)
  (call $done))
