;; Attacks: the memory, with more than any policy allows.
;; Must: not load.
;; expect: load=refused says="exceeds the limit memory"
;; memory: 4097
(func $act (param i32 i32) (result i32)
  (call $done))
