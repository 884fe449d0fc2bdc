;; Attacks: the host, by nothing.
;; Must: not load.
;; expect: load=refused says="not a WebAssembly component"
;; make: cut 0
(func $act (param i32 i32) (result i32)
  (call $done))
