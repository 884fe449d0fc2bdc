;; Attacks: the host, by a text that says it has 4 GiB.
;; Must: fail; nothing is copied.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (drop (call $say (i32.const 0) (i32.const 0xffffffff)))
  (i32.store8 (i32.const 2048) (i32.const 0))
  (i32.const 2048))
