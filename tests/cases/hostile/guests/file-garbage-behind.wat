;; Attacks: the host, by bytes behind the last section.
;; Must: not load.
;; expect: load=refused says="the component"
;; make: pad 70000
(func $act (param i32 i32) (result i32)
  (call $done))
