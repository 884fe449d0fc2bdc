//! What can be measured, one module for each.

pub mod commits;
pub mod growth;
pub mod provider;
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
        name: "commits",
        about: "the ledger alone beside bare redb: effects/s at 1, 8, 64 and 512 callers",
        peers: false,
        measure: commits::measure,
    },
    Part {
        name: "growth",
        about: "append, replay, bytes and recovery from 10⁴ effects on",
        peers: false,
        measure: growth::measure,
    },
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
