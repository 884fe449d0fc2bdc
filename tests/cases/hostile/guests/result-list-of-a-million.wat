;; Attacks: the host's memory, by a list of a million.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=result refund=0
;; wit: list
(func $act (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 70)))
  (i32.store (i32.const 2048) (i32.const 65536))
  (i32.store (i32.const 2052) (i32.const 1000000))
  (i32.const 2048))
