//! `oncegate completions`: for the shell's completion folder.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::Args;
use crate::exit::Exit;
use crate::print;

pub(crate) fn run(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    // Writing to stdout itself would panic where that fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "oncegate", &mut script);
    print::out(&String::from_utf8(script).context("the completions are no text")?)?;
    Ok(Exit::Ok)
}
