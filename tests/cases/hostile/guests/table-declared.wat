;; Attacks: the tables, with a million elements.
;; Must: not load.
;; expect: load=refused says="exceeds the limit table-elements"
(table 1000000 funcref)
(func $act (param i32 i32) (result i32)
  (call $done))
