;; Attacks: the engine, by a call of the host inside a call of the host.
;; Must: trap.
;; expect: status=refused code=tool_failed refund=0
;; uses: reads acts
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (call $get (i32.const 208) (i32.const 6) (global.get $answer))
  (call $allocate (local.get 3)))
(func $act (param i32 i32) (result i32)
  (call $done))
