//! Kills a program at its Nth `fdatasync`, `send` and so on, by a small library in C that is
//! compiled once and preloaded (`shim/killat.c`).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shim;

/// A kind of call that the shim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `fdatasync`: Rust's `File::sync_data`.
    Fdatasync,
    /// `fsync`: Rust's `File::sync_all`.
    Fsync,
    /// `connect` on a TCP socket.
    Connect,
    /// Any write to a TCP socket.
    Send,
    /// Any read from a TCP socket that brought bytes.
    Recv,
}

/// On which side of the call the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The call is not made. Not for [`Call::Recv`], which is only known once it brought bytes.
    Before,
    /// The call is made, its caller never hears of it.
    After,
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGSTOP: it waits, with its locks held, until SIGCONT.
    Stop,
}

/// The moment at which a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillPoint {
    /// Before or after the call.
    pub side: Side,
    /// What is counted.
    pub call: Call,
    /// Which one: 1 is the first.
    pub nth: u32,
    /// How it ends.
    pub signal: Signal,
}

impl KillPoint {
    /// SIGKILL just before the Nth call.
    pub fn before(call: Call, nth: u32) -> Self {
        Self { side: Side::Before, call, nth, signal: Signal::Kill }
    }

    /// SIGKILL just after the Nth call.
    pub fn after(call: Call, nth: u32) -> Self {
        Self { side: Side::After, ..Self::before(call, nth) }
    }

    /// Makes a command end there.
    ///
    /// # Errors
    /// The shim cannot be compiled.
    pub fn apply(&self, command: &mut Command) -> Result<()> {
        let signal = match self.signal {
            Signal::Kill => "kill",
            Signal::Stop => "stop",
        };
        command.env("LD_PRELOAD", shim()?).env("KILL_AT", self.to_string()).env("KILL_SIGNAL", signal);
        Ok(())
    }
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{side}-{}:{}", self.call, self.nth)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fdatasync => "fdatasync",
            Self::Fsync => "fsync",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Recv => "recv",
        })
    }
}

/// One line of the shim's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The process.
    pub pid: u32,
    /// `fdatasync`, `send` and so on.
    pub call: String,
    /// Which one in that process: 1 is the first.
    pub nth: u32,
    /// The file, or `port=N` of the peer.
    pub what: String,
}

/// Makes a command log its calls to a file, without an end.
///
/// # Errors
/// The shim cannot be compiled.
pub fn log_calls(command: &mut Command, file: &Path) -> Result<()> {
    command.env("LD_PRELOAD", shim()?).env("KILL_LOG", file);
    Ok(())
}

/// Reads what [`log_calls`] made a command write; no file is no calls.
///
/// # Errors
/// A line is not the shim's.
pub fn read_calls(file: &Path) -> Result<Vec<Seen>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(seen).collect()
}

fn seen(line: &str) -> Result<Seen> {
    let mut words = line.splitn(4, ' ');
    let mut next = || words.next().with_context(|| format!("not a log line: {line}"));
    Ok(Seen { pid: next()?.parse()?, call: next()?.to_owned(), nth: next()?.parse()?, what: next()?.to_owned() })
}

fn shim() -> Result<PathBuf> {
    shim::library("killat")
}
