//! `cargo xtask bench`: what Oncegate costs, as ratios, beside the bare engine, the bare disk and its peers.
//!
//! The measurements are a program in `tests/bench`; this builds what it needs, optimised, and runs it.

mod peers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::guests::{Guests, root, run};

/// Measure ratios; the table and the pictures of a whole run are kept in tests/bench
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask bench                 all that needs nothing from outside\n  \
    cargo xtask bench --peers         also installs and drives the peers\n  \
    cargo xtask bench --only calls    one part; --list shows them")]
pub(crate) struct Bench {
    /// Also install and drive other systems, under target/baselines and target/peers
    #[arg(long)]
    peers: bool,
    /// Few calls, once, by programs that are not optimised: shows that each part works
    #[arg(long)]
    smoke: bool,
    /// Where the results go instead
    #[arg(long)]
    out: Option<OsString>,
    /// What the program takes beside: --only PART, --list, --json
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Bench {
    /// Each part once, as a check.
    pub(crate) fn smoke() -> Self {
        Self { peers: false, smoke: true, out: None, rest: Vec::new() }
    }

    /// Builds and runs; a goal that is missed is a result and no error.
    pub(crate) fn run(&self) -> Result<()> {
        let root = root()?;
        Guests::build_quietly()?;
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&root).args(["build", "--quiet", "--workspace", "--bins"]);
        if !self.smoke {
            cargo.arg("--release");
        }
        run(&mut cargo)?;
        let mut bench = Command::new(self.programs()?.join("bench"));
        // The secret of the provider that the program starts; any word will do.
        bench.current_dir(&root).env("PAY_KEY", "sk_bench_0123456789abcdef").arg("--out").arg(self.folder());
        if self.smoke {
            bench.arg("--smoke");
        }
        if self.peers {
            crate::faults::baselines::install(&root)?;
            peers::install(&root)?;
            bench.arg("--peers");
        }
        run(bench.args(&self.rest)).context("the measurements")
    }

    /// Where cargo put what was built: this program is in the folder of those that are not optimised.
    fn programs(&self) -> Result<PathBuf> {
        let own = std::env::current_exe()?;
        let folder = own.parent().context("this program is in no folder")?;
        Ok(if self.smoke { folder.to_owned() } else { folder.with_file_name("release") })
    }

    fn folder(&self) -> PathBuf {
        match &self.out {
            Some(out) => out.into(),
            None if self.smoke => "target/bench".into(),
            None => "tests/bench".into(),
        }
    }
}
