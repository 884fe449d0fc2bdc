;; Attacks: the tables of others in the pool.
;; Must: not load.
;; expect: load=refused says="exceeds the limit tables"
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(table 1 funcref)
(func $act (param i32 i32) (result i32)
  (call $done))
