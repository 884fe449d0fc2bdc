//! How a process walls itself off, in the one order that works.
//!
//! First what needs its one thread (namespaces, landlock), then the engine's threads, then the filter on all of them.
//! Nothing that comes from outside is read before the last wall stands.

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, set_parent_process_death_signal,
    setrlimit, setsid,
};

use super::{filter, system};
use crate::isolation::Walls;

/// Descriptors of a runner: each component may need a handful.
const FILES_MAX: u64 = 4_096;
/// Bytes of address space for compiling; the largest language runtime needs 1.5 GiB.
pub(super) const COMPILE_BYTES_MAX: u64 = 8 << 30;
/// Seconds of CPU time between the signal that ends the compiler and the one that it cannot ignore.
const CPU_GRACE_SECONDS: u64 = 2;
/// Bytes of compiled code; some twenty times the largest language runtime's.
pub(super) const CODE_BYTES_MAX: u64 = 512 << 20;

/// What a process is walled off for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It runs guests.
    Runner,
    /// It compiles one component, for so many seconds of all cores together.
    Compiler { seconds: u64 },
}

/// Puts up all walls but the filter. For a process of one thread that has opened nothing.
pub(super) fn enter(kind: Kind) -> Result<Walls, String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    system::close_inherited().map_err(failed("closing what was inherited"))?;
    setsid().map_err(|error| failed("a session of its own")(error.into()))?;
    let user_namespace = system::unshare(libc::CLONE_NEWUSER).is_ok();
    let network_namespace = system::unshare(libc::CLONE_NEWNET).is_ok();
    // Entering a user namespace forgets this signal and allows tracing, so they come after it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed("ending with the host")(error.into()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| failed("no tracing")(error.into()))?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, FILES_MAX)?;
    if let Kind::Compiler { seconds } = kind {
        // The signal at the first says what it was; the second ends whatever ignores it.
        let cpu = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(CPU_GRACE_SECONDS)) };
        setrlimit(Resource::Cpu, cpu).map_err(|error| format!("the limit of CPU time: {error}"))?;
        limit(Resource::As, COMPILE_BYTES_MAX)?;
        limit(Resource::Fsize, CODE_BYTES_MAX)?;
    }
    system::drop_capabilities().map_err(failed("giving up capabilities"))?;
    let landlock = landlock().map_err(|error| format!("landlock: {error}"))?;
    Ok(Walls { landlock, user_namespace, network_namespace })
}

/// Puts up the last wall, around all threads.
pub(super) fn seal(kind: Kind) -> Result<(), String> {
    filter::apply(kind)
}

/// Lowers a limit; where it is lower already it stays.
fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most);
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(|error| format!("the limit {resource:?}: {error}"))
}

/// Denies every file, port and signal outside that this kernel can deny. Returns the version in force.
fn landlock() -> Result<u32, RulesetError> {
    let all = ABI::V7;
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(all))?
        .handle_access(AccessNet::from_all(all))?
        .scope(Scope::from_all(all))?;
    let status = ruleset.create()?.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => 0,
        (_, LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        _ => 0,
    })
}
