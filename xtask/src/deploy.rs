//! `cargo xtask deploy`: the files of `deploy/`, used: container file, Kubernetes manifests, systemd unit.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};

use crate::guests::{Guests, root, run};

/// Use the deployment files; says what was run and what this machine does not allow
#[derive(clap::Args)]
pub(crate) struct Deploy {
    /// Parts (manifests, image, kube, unit, restore), --require-all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Deploy {
    /// All parts that the machine allows.
    pub(crate) fn all() -> Self {
        Self { rest: Vec::new() }
    }

    /// Builds and runs; an error when a file does not do what its page says.
    pub(crate) fn run(&self) -> Result<()> {
        Guests::build_quietly()?;
        run(Command::new("cargo").current_dir(root()?).args(["build", "--quiet", "--workspace", "--bins"]))?;
        let program = std::env::current_exe()?.with_file_name("deploy");
        run(Command::new(program).args(&self.rest)).context("the deployment files")
    }
}
