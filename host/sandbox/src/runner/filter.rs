//! Which system calls a walled process may make: those that computing and one socket need.
//!
//! Everything else is answered with EPERM, not with death: a library that tries something better first goes on, and
//! what is refused is of no use to anybody in a process that can do nothing but compute and answer.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use super::lockdown::Kind;

/// Memory, time, threads that exist, signals of its own, and descriptors that it was given.
const PLAIN: [libc::c_long; 42] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // The image of a component's memory: a file without a name or a place.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    // What a thread does first, which may be after the filter.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
];
/// What older system calls do that this architecture still has.
#[cfg(target_arch = "x86_64")]
const OLDER: [libc::c_long; 1] = [libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [libc::c_long; 0] = [];
/// What `fcntl` may do: look at descriptors and seal them. It must not send signals or make leases.
const FCNTL: [libc::c_int; 6] =
    [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_ADD_SEALS, libc::F_GET_SEALS];

/// Puts the filter on every thread of this process, for good.
pub(super) fn apply(kind: Kind) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("seccomp: {error}");
    for program in programs(kind).map_err(|error| wrong(&error))? {
        apply_filter_all_threads(&program).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

fn programs(kind: Kind) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
        PLAIN.into_iter().chain(OLDER).map(|call| (call, Vec::new())).collect();
    let fcntl: Result<_, _> = FCNTL.into_iter().map(|command| rule(1, SeccompCmpOp::Eq, number(command))).collect();
    allowed.insert(libc::SYS_fcntl, fcntl?);
    // A signal reaches this process only: that is how it aborts.
    let own = u64::from(std::process::id());
    allowed.insert(libc::SYS_tgkill, vec![rule(0, SeccompCmpOp::Eq, own)?]);
    // A thread names itself.
    allowed.insert(libc::SYS_prctl, vec![rule(0, SeccompCmpOp::Eq, number(libc::PR_SET_NAME))?]);
    let mut programs = Vec::new();
    if matches!(kind, Kind::Compiler { .. }) {
        // Threads, but no processes. What the newer call would make cannot be seen from here, so it is not there.
        let thread = number(libc::CLONE_THREAD);
        allowed.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
        allowed.insert(libc::SYS_clone3, Vec::new());
        let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        programs.push(program(absent, SeccompAction::Allow, SeccompAction::Errno(errno(libc::ENOSYS)))?);
    }
    programs.push(program(allowed, SeccompAction::Errno(errno(libc::EPERM)), SeccompAction::Allow)?);
    Ok(programs)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, matched, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn rule(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)?])
}

/// A constant of the C library that is never negative.
fn number(constant: libc::c_int) -> u64 {
    u64::from(constant.unsigned_abs())
}

fn errno(constant: libc::c_int) -> u32 {
    constant.unsigned_abs()
}
