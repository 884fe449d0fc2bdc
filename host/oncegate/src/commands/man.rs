//! `oncegate man`: one page per command.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::Args;
use crate::exit::Exit;

pub(crate) fn run(directory: &Path) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Args::command(), directory))
        .with_context(|| format!("the man pages cannot be written to {}", directory.display()))?;
    Ok(Exit::Ok)
}
