//! The second wall: runner processes for guests, a process for compiling, and what the host itself gives up.
//!
//! WebAssembly is the first wall. Behind it a guest's process has no secret, no file, no network and no other program,
//! so that a hole in the engine opens on nothing. The program runs itself again for both, by the arguments that
//! [`Program`] names: those commands do nothing but [`run_guests`] and [`compile`].

use std::ffi::OsString;
use std::path::PathBuf;

/// How this program is run again for runners and for compiling. Neither is given an environment.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program; `/proc/self/exe` is the one that runs, even if its file was replaced since.
    pub path: PathBuf,
    /// Its arguments for a process that comes to [`run_guests`].
    pub runner: Vec<OsString>,
    /// Its arguments for a process that comes to [`compile`]; the seconds follow them.
    pub compiler: Vec<OsString>,
}

/// Runner processes cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// Not on this system.
    #[error("guests in processes of their own need Linux; here they can only run in this process (--isolation none)")]
    NotHere,
    /// The process cannot be started.
    #[error("no process for guests can be started")]
    Start(#[source] std::io::Error),
    /// It could not wall itself off, so it ended.
    #[error("the process for guests cannot wall itself off: {0}")]
    Walls(String),
    /// It said something that no runner says.
    #[error("the process for guests did not begin as it must: {0}")]
    Began(String),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
}

/// The walls around a process that depend on the kernel. What does not depend on it (seccomp, no new privileges, no
/// core dump, no tracing, no capability, own session) is there, or the process ends before it has read anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walls {
    /// The version of landlock that is enforced; 0 where the kernel has none.
    pub landlock: u32,
    /// It is in a user namespace of its own.
    pub user_namespace: bool,
    /// It is in a network namespace of its own, in which there is nothing.
    pub network_namespace: bool,
}

/// Something that a runner tried from within, and must not be able to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What it tried.
    pub what: String,
    /// How that was refused; none when it was not.
    pub refused: Option<String>,
}

/// What a runner is like, as it says itself and as the system says of it.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The walls that depend on the kernel.
    pub walls: Walls,
    /// What it tried.
    pub attempts: Vec<Attempt>,
    /// `Seccomp`, `NoNewPrivs`, `CapEff` and so on of its `/proc/PID/status`.
    pub status: Vec<(String, String)>,
}

#[cfg(target_os = "linux")]
pub use linux::{compile, examine, harden, run_guests};

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;

    use rustix::fs::Mode;
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit, umask};

    use super::{Examined, IsolationError, Program};
    use crate::runner;

    /// What a process for guests does, from its start to its end: it walls itself off, then runs what the host gives it.
    /// Its standard input is the host's socket. Nothing else may run in the process before or beside it.
    #[must_use]
    pub fn run_guests() -> ExitCode {
        runner::inside::main()
    }

    /// What a process for compiling does: a component on standard input, its code on standard output, in at most so
    /// many seconds of CPU time. [`Program::compiler`] has a further argument: the seconds.
    #[must_use]
    pub fn compile(seconds: u64) -> ExitCode {
        runner::compiler::main(seconds)
    }

    /// Starts a runner, has it try what it must not be able to do, and ends it.
    ///
    /// # Errors
    /// [`IsolationError`].
    pub fn examine(program: &Program) -> Result<Examined, IsolationError> {
        runner::examine(program)
    }

    /// What the host's own process gives up: core dumps and tracing by others, which would show its secrets, and files
    /// that others can read, if `private`. It keeps the right to run programs with privileges of their own, since a
    /// credential may come from one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn harden(private: bool) -> std::io::Result<()> {
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        if private {
            umask(Mode::RWXG | Mode::RWXO);
        }
        Ok(())
    }
}
