//! Compiling in a process of its own, for as long as one component takes, with nothing to reach and limits on all it uses.
//!
//! A component is hostile to a compiler too: it may take hours, or all memory, or find a hole. What comes out is checked
//! by nobody, and needs not be: it is code that runs in a runner only, as the component's own.

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use super::lockdown::{self, CODE_BYTES_MAX, COMPILE_BYTES_MAX, Kind};
use super::sealed;
use crate::cache;
use crate::describe::Description;
use crate::engine;
use crate::isolation::Program;
use crate::limits::COMPONENT_BYTES_MAX;
use crate::load::{self, ComponentError};

/// How often the process is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How much longer than its CPU time it may take: other processes want the cores too.
const PATIENCE: u32 = 20;
/// Bytes of what it says when it fails.
const WHY_BYTES_MAX: u64 = 2_000;

const SIGABRT: i32 = 6;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// Compiles a component, or says why that was not possible. `time` bounds the seconds of all cores together.
pub(super) fn compile(program: &Program, bytes: &[u8], time: Duration) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("no process can be started for it: {error}");
    let input = sealed::file("oncegate-component").map_err(failed)?;
    sealed::write(&input, bytes).map_err(failed)?;
    rustix::fs::seek(&input, rustix::fs::SeekFrom::Start(0)).map_err(|error| failed(error.into()))?;
    let output = sealed::file("oncegate-compiled").map_err(failed)?;
    let errors = sealed::file("oncegate-errors").map_err(failed)?;
    let copy = |file: &OwnedFd| file.try_clone().map_err(failed);
    let mut command = Command::new(&program.path);
    command.arg0("oncegate-compiler").args(&program.compiler).arg(seconds(time).to_string());
    command.env_clear().current_dir("/").stdin(input).stdout(copy(&output)?).stderr(copy(&errors)?);
    let child = command.spawn().map_err(failed)?;
    let status = wait(child, time.saturating_mul(PATIENCE)).map_err(failed)?;
    match status {
        Some(status) if status.success() => sealed::read(&output, CODE_BYTES_MAX).map_err(failed),
        Some(status) => Err(why(status, time, &sealed::read(&errors, WHY_BYTES_MAX).unwrap_or_default())),
        None => Err(out_of_time(time)),
    }
}

fn seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

/// Waits for its end; none when it did not come in time, and the process was ended.
fn wait(mut child: Child, within: Duration) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > within {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether it failed by itself or was ended for what it used.
fn why(status: ExitStatus, time: Duration, said: &[u8]) -> String {
    match (status.code(), status.signal()) {
        (Some(1), _) => String::from_utf8_lossy(said).chars().filter(|c| !c.is_control()).collect(),
        (_, Some(SIGXCPU)) => out_of_time(time),
        (_, Some(SIGXFSZ)) => format!("its code has more than {} MiB", CODE_BYTES_MAX >> 20),
        (_, Some(SIGABRT)) => {
            format!("the compiler gave up; compiling it may need more than {} MiB", COMPILE_BYTES_MAX >> 20)
        }
        _ => format!("the compiler ended with {status}"),
    }
}

fn out_of_time(time: Duration) -> String {
    format!("compiling it takes more than {} s (the limit compile-time)", seconds(time))
}

/// From the start of the process to its end: component in, code out.
pub(crate) fn main(seconds: u64) -> ExitCode {
    let compiled = lockdown::enter(Kind::Compiler { seconds }).and_then(|_| code());
    let written = compiled.and_then(|code| {
        sealed::write(rustix::stdio::stdout(), &code).map_err(|error| format!("its code cannot be given out: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn code() -> Result<Vec<u8>, String> {
    let engine = engine::compiling().map_err(|error| error.to_string())?;
    lockdown::seal(Kind::Compiler { seconds: 0 })?;
    let bytes = sealed::read(rustix::stdio::stdin(), COMPONENT_BYTES_MAX as u64).map_err(|error| error.to_string())?;
    let description = Description::read(&bytes).map_err(|error| error.to_string())?;
    let compiled = engine.precompile_component(&bytes).map_err(|error| format!("{error:#}"))?;
    let component = cache::deserialize(&engine, &compiled).map_err(|error| format!("{error:#}"))?;
    match load::link(&engine, &component, description.class, &load::exports(&description)) {
        Ok(_) => Ok(compiled),
        Err(ComponentError::Link(why)) => Err(format!("it cannot be linked for its effect class: {why}")),
        Err(other) => Err(other.to_string()),
    }
}
