;; Attacks: the reader of types, by pairs of pairs, twenty deep.
;; Must: not load.
;; expect: load=refused says="the component"
;; contract: pure
;; sections: contract
(component
  (type $t0 (tuple u8 u8))
  (type $t1 (tuple $t0 $t0))
  (type $t2 (tuple $t1 $t1))
  (type $t3 (tuple $t2 $t2))
  (type $t4 (tuple $t3 $t3))
  (type $t5 (tuple $t4 $t4))
  (type $t6 (tuple $t5 $t5))
  (type $t7 (tuple $t6 $t6))
  (type $t8 (tuple $t7 $t7))
  (type $t9 (tuple $t8 $t8))
  (type $t10 (tuple $t9 $t9))
  (type $t11 (tuple $t10 $t10))
  (type $t12 (tuple $t11 $t11))
  (type $t13 (tuple $t12 $t12))
  (type $t14 (tuple $t13 $t13))
  (type $t15 (tuple $t14 $t14))
  (type $t16 (tuple $t15 $t15))
  (type $t17 (tuple $t16 $t16))
  (type $t18 (tuple $t17 $t17))
  (type $t19 (tuple $t18 $t18))
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
    (func (export "act") (param i32)))
  (core instance $i (instantiate $m))
  (func $act (param "x" $t14)
    (canon lift (core func $i "act") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (export "act" (func $act)))
