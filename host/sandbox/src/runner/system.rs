//! System calls that have no safe form among our dependencies, each wrapped where it is sound.

#![allow(unsafe_code, reason = "each call takes plain numbers or memory that lives here, and says why it is sound")]

use std::io;

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes what a process inherited beside its three standard streams. For its first moment, when nothing in it has
/// opened anything yet.
pub(super) fn close_inherited() -> io::Result<()> {
    let (first, last, flags): (libc::c_uint, libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX, 0);
    // SAFETY: no owner of a descriptor exists in this process yet: main has opened nothing.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })
}

/// Moves this process into new namespaces; for a process of one thread.
pub(super) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the flags that are given here (user and network) leave memory, files and signals as they are.
    checked(unsafe { libc::unshare(flags) }.into())
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

/// `_LINUX_CAPABILITY_VERSION_3`
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Gives up every capability of this thread, for good.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    // Effective, permitted and inheritable, twice 32 of them.
    let none = [[0_u32; 3]; 2];
    // SAFETY: header and data have the layout of this version, and live through the call, which only reads them.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })
}

/// Tries to trace another process, which must not succeed.
pub(super) fn try_to_trace(pid: libc::pid_t) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: attaching reads and writes no memory of this process.
    checked(unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, nothing, nothing) })
}
