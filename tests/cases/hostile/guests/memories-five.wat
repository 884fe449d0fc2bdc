;; Attacks: the memories of others in the pool.
;; Must: not load.
;; expect: load=refused says="exceeds the limit memories"
;; contract: pure
(component
  (core module $m (memory 1))
  (core instance (instantiate $m))
  (core instance (instantiate $m))
  (core instance (instantiate $m))
  (core instance (instantiate $m))
  (core instance (instantiate $m)))
