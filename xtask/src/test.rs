//! `cargo xtask test`: everything that must hold before a change lands.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::deploy::Deploy;
use crate::faults::Faults;
use crate::fuzz::Fuzz;
use crate::guests::{Guests, printed, root, run};
use crate::sessions::Sessions;

/// Run all checks and tests, installing what they need
#[derive(clap::Args)]
pub(crate) struct Test {}

/// The version that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

impl Test {
    /// Stops at the first check that fails.
    pub(crate) fn run(&self) -> Result<()> {
        step("format", || cargo(&["fmt", "--all", "--check"]))?;
        step("guests", Guests::build_quietly)?;
        step("clippy", || cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        step("docs", docs)?;
        step("licences and sources", deny)?;
        step("build", || cargo(&["build", "--quiet", "--workspace", "--bins"]))?;
        step("tests", || cargo(&["test", "--workspace", "--no-fail-fast"]))?;
        step("faults", || Faults::quick().run())?;
        step("faults on PostgreSQL", || Faults::quick_on_postgres().run())?;
        step("fuzz", || Fuzz::minute().run())?;
        step("sessions", || Sessions::minute().run())?;
        step("deploy", || Deploy::all().run())?;
        step("bench", || Bench::smoke().run())
    }
}

fn step(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    eprintln!("== {name}");
    check().with_context(|| format!("the check `{name}` failed"))?;
    eprintln!("== {name}: ok, {} s", started.elapsed().as_secs());
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run(Command::new("cargo").current_dir(root()?).args(arguments))
}

fn docs() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root()?).args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    run(&mut cargo)
}

/// Advisories need a database that is not in the package registries; the release process checks them.
fn deny() -> Result<()> {
    if printed(Command::new("cargo").args(["deny", "--version"])).is_err() {
        cargo(&["install", "--quiet", "--locked", "cargo-deny", "--version", CARGO_DENY])?;
    }
    // It looks at crates of other targets too, which no build here has downloaded.
    cargo(&["fetch", "--quiet", "--locked"])?;
    cargo(&["deny", "--offline", "--log-level", "error", "check", "bans", "licenses", "sources"])
}
