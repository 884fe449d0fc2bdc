;; Attacks: the host, by a result behind the end of memory.
;; Must: fail.
;; expect: status=refused code=tool_failed refund=0
(func $act (param i32 i32) (result i32)
  (i32.const 0xfffffff0))
