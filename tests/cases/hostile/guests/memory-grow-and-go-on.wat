;; Attacks: nothing: growth was refused and the guest lives with it.
;; Must: be answered.
;; expect: status=done refund=1
;; limits: memory = "8MiB"
(func $act (param i32 i32) (result i32)
  (loop $more
    (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
  (call $look)
  (call $refund)
  (call $done))
