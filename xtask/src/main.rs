//! Tasks of this repository: `cargo xtask COMMAND`. One file for each command.

mod guests;

use anyhow::Result;
use clap::Parser;

/// Tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_version_flag = true)]
enum Xtask {
    Guests(guests::Guests),
}

fn main() -> Result<()> {
    match Xtask::parse() {
        Xtask::Guests(guests) => guests.run(),
    }
}
