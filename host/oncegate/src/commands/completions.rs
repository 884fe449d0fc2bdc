//! `oncegate completions`: for the shell's completion folder.

use clap::CommandFactory;

use crate::args::Args;
use crate::exit::Exit;

pub(crate) fn run(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    clap_complete::generate(shell, &mut Args::command(), "oncegate", &mut std::io::stdout());
    Ok(Exit::Ok)
}
