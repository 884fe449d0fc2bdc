//! `cargo xtask sessions`: a thousand sessions over HTTP for a minute, some of which vanish in the middle of a call.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};

use crate::guests::{Guests, root, run};

/// Run a thousand sessions for a minute against `oncegate serve --http`
#[derive(clap::Args)]
pub(crate) struct Sessions {
    /// --sessions N, --seconds N, --think-ms N, --seed N
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Sessions {
    /// A thousand for a minute, as a check.
    pub(crate) fn minute() -> Self {
        Self { rest: Vec::new() }
    }

    /// Builds and runs; an error when an effect was lost or doubled, a row is stuck, or memory grew.
    pub(crate) fn run(&self) -> Result<()> {
        Guests::build_quietly()?;
        run(Command::new("cargo").current_dir(root()?).args(["build", "--quiet", "--workspace", "--bins"]))?;
        let program = std::env::current_exe()?.with_file_name("sessions");
        run(Command::new(program).args(&self.rest)).context("the sessions")
    }
}
