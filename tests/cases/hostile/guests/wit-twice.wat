;; Attacks: the agent, by a second text.
;; Must: not load.
;; expect: load=refused says="oncegate:wit"
;; sections: contract wit wit
(func $act (param i32 i32) (result i32)
  (call $done))
