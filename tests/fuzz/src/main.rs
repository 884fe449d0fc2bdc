//! The program that libFuzzer drives: `ONCEGATE_FUZZ_TARGET` names the target, the arguments are libFuzzer's.
#![no_main]
#![allow(unsafe_code, reason = "libFuzzer is C++: it calls functions by name, and hands over a pointer and a length")]

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use oncegate_fuzz::{TARGETS, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// Called once, before the first input. A panic is a finding, also one that a task would keep to itself.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerInitialize(_: *const c_int, _: *const *const *const c_char) -> c_int {
    let wanted = std::env::var("ONCEGATE_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == wanted) else {
        eprintln!("ONCEGATE_FUZZ_TARGET is {wanted:?}, which is no target");
        std::process::exit(2);
    };
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        said(panic);
        std::process::abort();
    }));
    TARGET.get_or_init(|| target);
    0
}

/// Called with each input.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int {
    let Some(target) = TARGET.get() else { return -1 };
    if data.is_null() || size == 0 {
        (target.run)(&[]);
    } else {
        // SAFETY: libFuzzer hands over `size` bytes at `data`, which nobody writes while this runs.
        (target.run)(unsafe { std::slice::from_raw_parts(data, size) });
    }
    0
}
