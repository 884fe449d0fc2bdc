;; Attacks: the reviewer, by a contract of a megabyte.
;; Must: not load.
;; expect: load=refused says="limit section"
;; sections: huge wit
(func $act (param i32 i32) (result i32)
  (call $done))
