;; Attacks: the reviewer, by running code that is not in the file.
;; Must: not load.
;; expect: load=refused says="that it is handed"
;; contract: pure
(component
  (import "code" (component $code))
  (instance (instantiate $code)))
