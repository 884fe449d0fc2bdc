;; Attacks: the class of the component, by an import.
;; Must: not load.
;; expect: load=refused says="effect = \"none\""
;; contract: none
(func $act (param i32 i32) (result i32)
  (call $done))
