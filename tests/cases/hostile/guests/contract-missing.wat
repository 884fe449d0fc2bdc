;; Attacks: the reviewer, by no contract at all.
;; Must: not load: it imports doors that only a contract opens.
;; expect: load=refused says="carries no contract"
;; sections: wit
(func $act (param i32 i32) (result i32)
  (call $done))
