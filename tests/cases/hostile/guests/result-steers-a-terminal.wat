;; Attacks: whoever reads the answer, by characters that steer.
;; Must: keep them inside `result`, which the program prints escaped.
;; expect: status=done refund=0 not-says=31m
(data (i32.const 4096) "\1b[31mred\e2\80\ae")
(func $act (param i32 i32) (result i32)
  (drop (call $say (i32.const 4096) (i32.const 11)))
  (i32.store8 (i32.const 2048) (i32.const 0))
  (i32.const 2048))
