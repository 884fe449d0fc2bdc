//! What can be measured, one module for each.

pub mod already_done;
pub mod callers;
pub mod calls;
pub mod commits;
pub mod effect;
pub mod growth;
pub mod mcp;
pub mod neighbours;
pub mod peers;
pub mod process;
pub mod provider;
pub mod runners;
pub mod start;
pub mod throughput;
pub mod waiting;
pub mod world;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::program::Effort;
use crate::row::Row;

/// Measures rows; the folder is for pictures.
pub type Measure = fn(Effort, &Path) -> Result<Vec<Row>>;

/// One part of a run.
#[derive(Debug)]
pub struct Part {
    /// For `--only`.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// It installs and drives other systems: `--peers`.
    pub peers: bool,
    /// Measures it.
    pub measure: Measure,
}

const fn part(name: &'static str, about: &'static str, measure: Measure) -> Part {
    Part { name, about, peers: false, measure }
}

impl Part {
    const fn of_peers(self) -> Self {
        Self { peers: true, ..self }
    }
}

/// All, in the order of the table.
pub const ALL: &[Part] = &[
    part("calls", "one sandboxed call through the library, beside the bare engine", calls::measure),
    part("runners", "the same call in a runner process, and in two of them", runners::measure),
    part("mcp", "a tool over MCP, beside Wassette", mcp::measure).of_peers(),
    part("effect", "one effect beside two commits", effect::measure),
    part("commits", "the ledger alone beside bare redb: effects/s at 1, 8, 64 and 512 callers", commits::measure),
    part("throughput", "whole effects per second", throughput::measure),
    part("peers", "effects per second beside effect-ledger, exactly-once, DBOS and Restate", peers::measure).of_peers(),
    part("already-done", "a repeat beside the first", already_done::measure),
    part("waiting", "memory of calls that wait for a provider", waiting::measure),
    part("neighbours", "what a small tool's callers notice of two tools that spin", neighbours::measure),
    part("growth", "append, replay, bytes and recovery from 10⁴ effects on", growth::measure),
    part("start", "start to tools/list, with one component and many", start::measure),
    part("process", "one call as a process", process::measure),
];

/// A program that was built beside this one.
///
/// # Errors
/// It was not.
pub fn beside(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    let built = program.exists().then_some(program);
    built.with_context(|| format!("`{name}` is not built; run `cargo build --release --workspace --bins`"))
}
