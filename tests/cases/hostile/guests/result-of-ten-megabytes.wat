;; Attacks: the agent, by a text of ten megabytes behind a done effect.
;; Must: leave it out and tell the effect.
;; expect: status=done refund=1 truncated=true
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (drop (memory.grow (i32.const 160)))
  (memory.fill (i32.const 65536) (i32.const 97) (i32.const 10000000))
  (drop (call $say (i32.const 65536) (i32.const 10000000)))
  (i32.store8 (i32.const 2048) (i32.const 0))
  (i32.const 2048))
