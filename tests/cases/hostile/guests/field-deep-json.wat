;; Attacks: the host, by a JSON document of a thousand lists.
;; Must: be refused; nothing is sent.
;; expect: status=refused code=invalid_arguments refund=0
(data (i32.const 88) "\04\00\00\00\00\00\00\00\00\10\00\00\e8\03\00\00")
(func $act (param i32 i32) (result i32)
  (memory.fill (i32.const 4096) (i32.const 91) (i32.const 1000))
  (call $look)
  (call $perform (i32.const 32) (i32.const 13) (i32.const 80) (i32.const 1) (global.get $answer))
  (call $done))
