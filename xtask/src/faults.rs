//! `cargo xtask faults`: kills in every step, in every mode of a provider, judged by the provider's count.
//!
//! The matrix is a program of the tests; this builds what it needs, says where its results go, and runs it.

pub(crate) mod baselines;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::guests::{Guests, root, run};

/// Run the fault matrix, with --baselines a small one for others beside Oncegate, with --postgres the campaign of hosts
/// that share a ledger
#[derive(clap::Args)]
pub(crate) struct Faults {
    /// quick (minutes) or full (at least 100,000 effects); the table of the full one is kept in tests/faults
    #[arg(long, default_value = "quick")]
    profile: String,
    /// Drive other systems beside Oncegate; installs them under target/baselines
    #[arg(long)]
    baselines: bool,
    /// Hosts that share a ledger on PostgreSQL (Debian's), with faults of hosts, database and network; takes beside:
    /// --only WORDS, --hosts N, --races N, --seed N, --lanes N
    #[arg(long, conflicts_with = "baselines")]
    postgres: bool,
    /// Where table.md and rows.json go instead
    #[arg(long)]
    out: Option<OsString>,
    /// What the matrix takes beside: --seed N, --only NAME, --resume, --lanes N, --effects N
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Faults {
    /// The quick profile, as a check.
    pub(crate) fn quick() -> Self {
        Self { profile: "quick".to_owned(), baselines: false, postgres: false, out: None, rest: Vec::new() }
    }

    /// The same of hosts that share a ledger on PostgreSQL.
    pub(crate) fn quick_on_postgres() -> Self {
        Self { postgres: true, ..Self::quick() }
    }

    /// Builds and runs; an error when a promise was broken, or when the control was not caught.
    pub(crate) fn run(&self) -> Result<()> {
        let root = root()?;
        Guests::build_quietly()?;
        run(Command::new("cargo").current_dir(&root).args(["build", "--quiet", "--workspace", "--bins"]))?;
        if self.baselines {
            baselines::install(&root)?;
        }
        let programs = std::env::current_exe()?;
        let program = if self.postgres { "pgfaults" } else { "faults" };
        let mut faults = Command::new(programs.with_file_name(program));
        faults.current_dir(&root).args(["--profile", &self.profile]);
        faults.arg("--out").arg(self.folder(&root)).args(&self.rest);
        if !self.postgres {
            faults.arg("--state").arg(root.join("target/faults"));
        }
        if self.baselines {
            faults.arg("--baselines");
        }
        run(&mut faults).context("the fault matrix")
    }

    /// A table that others can compare theirs with is kept; a sample or a part is not.
    fn folder(&self, root: &Path) -> std::path::PathBuf {
        let parts = ["--only", "--hosts", "--races"];
        let is_part = |argument: &OsString| parts.iter().any(|part| argument.to_string_lossy().starts_with(part));
        let part = self.rest.iter().any(is_part);
        match &self.out {
            Some(out) => root.join(out),
            None if self.postgres && (part || self.profile != "full") => root.join("target/faults/postgres"),
            None if self.postgres => root.join("tests/faults/postgres"),
            None if part => root.join("target/faults"),
            None if self.baselines => root.join("tests/faults/beside"),
            None if self.profile == "full" => root.join("tests/faults"),
            None => root.join("target/faults"),
        }
    }
}
