;; Attacks: the reviewer, by a second contract.
;; Must: not load.
;; expect: load=refused says="oncegate:contract"
;; sections: contract contract wit
(func $act (param i32 i32) (result i32)
  (call $done))
