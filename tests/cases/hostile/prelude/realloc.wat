;; An allocator as guests have one.
(func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
  (call $allocate (local.get $size)))
