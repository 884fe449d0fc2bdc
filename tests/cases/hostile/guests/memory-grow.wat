;; Attacks: the memory, until it is refused.
;; Must: end with the limit and not with the trap that the guest makes of it.
;; expect: status=refused code=tool_limit limit=memory refund=0
;; limits: memory = "8MiB"
(func $act (param i32 i32) (result i32)
  (loop $more
    (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
  unreachable)
