;; Attacks: the agent, by a text about other types.
;; Must: not load.
;; expect: load=refused says="does not describe this component"
;; text: lie
(func $act (param i32 i32) (result i32)
  (call $done))
