//! What can be measured, one module for each.

pub mod mcp;
pub mod process;
pub mod provider;
pub mod start;
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
    Part { name: "mcp", about: "a tool over MCP, beside Wassette", peers: true, measure: mcp::measure },
    Part {
        name: "start",
        about: "start to tools/list, with one component and many",
        peers: false,
        measure: start::measure,
    },
    Part { name: "process", about: "one call as a process", peers: false, measure: process::measure },
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
