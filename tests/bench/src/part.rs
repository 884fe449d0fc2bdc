//! What can be measured, one module for each.

pub mod already_done;
pub mod callers;
pub mod effect;
pub mod neighbours;
pub mod peers;
pub mod provider;
pub mod throughput;
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

/// All, in the order of the table.
pub const ALL: &[Part] = &[
    Part {
        name: "neighbours",
        about: "what a small tool's callers notice of two tools that spin",
        peers: false,
        measure: neighbours::measure,
    },
    Part {
        name: "peers",
        about: "effects per second beside effect-ledger, exactly-once, DBOS and Restate",
        peers: true,
        measure: peers::measure,
    },
    Part { name: "effect", about: "one effect beside two commits", peers: false, measure: effect::measure },
    Part { name: "already-done", about: "a repeat beside the first", peers: false, measure: already_done::measure },
    Part { name: "throughput", about: "whole effects per second", peers: false, measure: throughput::measure },
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
