;; Attacks: the call, by a trap behind a lookup.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0 asked=1
(func $act (param i32 i32) (result i32)
  (call $look)
  unreachable)
