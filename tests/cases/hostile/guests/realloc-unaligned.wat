;; Attacks: the host, by an allocator that does not align.
;; Must: end well: text needs no alignment, and the field list is read where it is aligned.
;; expect: status=done refund=1
;; uses: reads acts
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (i32.add (call $allocate (i32.add (local.get 3) (i32.const 8))) (i32.ne (local.get 2) (i32.const 4))))
(func $act (param i32 i32) (result i32)
  (call $look)
  (call $refund)
  (call $done))
