;; Attacks: the host, by a result at an odd place.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (drop (call $done))
  (i32.const 2049))
