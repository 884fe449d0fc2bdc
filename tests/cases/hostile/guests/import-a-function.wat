;; Attacks: the door, by a function without an interface.
;; Must: not load.
;; expect: load=refused says="imported outside a package's interface"
;; contract: pure
;; sections: contract
(component
  (import "open" (func $open))
  (core func $door (canon lower (func $open)))
  (core module $m
    (import "" "open" (func $open))
    (func (export "act") (call $open)))
  (core instance $i (instantiate $m (with "" (instance (export "open" (func $door))))))
  (func (export "act") (canon lift (core func $i "act"))))
