;; Attacks: the model, by docs that instruct it; the policy does not name the component.
;; Must: be listed in the host's words alone.
;; expect: status=done refund=0 result=said
;; wit: instructs
;; contract: pure
;; uses: realloc
;; policy: silent
(func $act (param i32 i32) (result i32)
  (call $done))
