;; Attacks: the server, by a component without a function.
;; Must: not load.
;; expect: load=refused says="exports no function"
;; contract: pure
;; sections: contract
(component)
