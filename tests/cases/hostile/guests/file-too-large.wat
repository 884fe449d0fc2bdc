;; Attacks: the host, by one byte more than 64 MiB.
;; Must: not load.
;; expect: load=refused says="limit component"
;; make: pad 67108865
(func $act (param i32 i32) (result i32)
  (call $done))
