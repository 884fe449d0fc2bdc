;; Attacks: the stack, by an allocator that calls itself while the host writes.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=stack refund=0
;; uses: reads acts
(func $deeper (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (i32.add (i32.const 8) (call $deeper (local.get 0) (local.get 1) (local.get 2) (local.get 3))))
(func $act (param i32 i32) (result i32)
  (call $done))
