;; Attacks: the reader of types, by a tool that hands out a handle.
;; Must: not load.
;; expect: load=refused says="cannot be read as WIT"
;; contract: pure
;; sections: contract
(component
  (type $r (resource (rep i32)))
  (export $thing "thing" (type $r))
  (core func $new (canon resource.new $r))
  (core module $m
    (import "" "new" (func $new (param i32) (result i32)))
    (func (export "act") (result i32) (call $new (i32.const 1))))
  (core instance $i (instantiate $m (with "" (instance (export "new" (func $new))))))
  (func (export "act") (result (own $thing)) (canon lift (core func $i "act"))))
