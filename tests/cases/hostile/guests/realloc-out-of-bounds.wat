;; Attacks: the host, by an allocator whose memory is not there.
;; Must: fail; nothing is written.
;; expect: status=refused code=tool_failed refund=0
;; uses: reads acts
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (i32.const 0xfffffff0))
(func $act (param i32 i32) (result i32)
  (call $done))
