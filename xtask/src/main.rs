//! Tasks of this repository: `cargo xtask COMMAND`. One file for each command.

mod bench;
mod demo;
mod deploy;
mod faults;
mod fuzz;
mod guests;
mod sessions;
mod test;

use anyhow::Result;
use clap::Parser;

/// Tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_version_flag = true)]
enum Xtask {
    Bench(bench::Bench),
    Guests(guests::Guests),
    Demo(demo::Demo),
    Deploy(deploy::Deploy),
    Faults(faults::Faults),
    Reproduce(guests::reproduce::Reproduce),
    Fuzz(fuzz::Fuzz),
    Sessions(sessions::Sessions),
    Test(test::Test),
}

fn main() -> Result<()> {
    match Xtask::parse() {
        Xtask::Bench(bench) => bench.run(),
        Xtask::Guests(guests) => guests.run(),
        Xtask::Demo(demo) => demo.run(),
        Xtask::Deploy(deploy) => deploy.run(),
        Xtask::Faults(faults) => faults.run(),
        Xtask::Reproduce(reproduce) => reproduce.run(),
        Xtask::Fuzz(fuzz) => fuzz.run(),
        Xtask::Sessions(sessions) => sessions.run(),
        Xtask::Test(test) => test.run(),
    }
}
