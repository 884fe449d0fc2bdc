;; Attacks: the reviewer, by a contract that is no text.
;; Must: not load.
;; expect: load=refused says="is not UTF-8 text"
;; sections: broken wit
(func $act (param i32 i32) (result i32)
  (call $done))
