;; Attacks: the tables, until one is refused.
;; Must: end with the limit.
;; expect: status=refused code=tool_limit limit=table-elements refund=0
(table $table 1 funcref)
(func $act (param i32 i32) (result i32)
  (loop $more
    (br_if $more (i32.ne (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1))))
  unreachable)
