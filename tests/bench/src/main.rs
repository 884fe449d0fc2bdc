//! `cargo xtask bench` builds this and runs it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    oncegate_bench::program::Program::parse().run()
}
