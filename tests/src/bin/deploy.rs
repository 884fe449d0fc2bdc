//! The deployment files, used: `cargo xtask deploy` runs it and says what was run and what was not.

use anyhow::{Result, bail};
use clap::Parser;
use oncegate_tests::deploy::{self, Part};

/// Use the deployment files as their page says
#[derive(Parser)]
struct Arguments {
    /// Which parts; without one all
    parts: Vec<Part>,
    /// Fail when a part cannot be run on this machine
    #[arg(long)]
    require_all: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let parts = if arguments.parts.is_empty() { Part::ALL.to_vec() } else { arguments.parts };
    let all = deploy::run(&parts)?;
    if all {
        println!("every part was run");
    } else if arguments.require_all {
        bail!("some parts were not run");
    } else {
        println!("SOME PARTS WERE NOT RUN on this machine; their files are not proven by this run");
    }
    Ok(())
}
