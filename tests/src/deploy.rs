//! The deployment files of `deploy/`, used: each part does with them what their page says, on real programs.
//!
//! What a machine does not let us do is not run, and is said to be not run; it is never a success.

mod arguments;
pub mod image;
pub mod kube;
pub mod manifests;
pub mod podman;
pub mod restore;
pub mod site;
pub mod unit;

use std::time::Instant;

use anyhow::Result;

use podman::Podman;

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was done, and this is what was seen.
    Seen(Vec<String>),
    /// The same, but for something that was not done, and why.
    Partly(Vec<String>, String),
    /// This machine does not let us, and why.
    NotRun(String),
}

/// A part of `cargo xtask deploy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The Kubernetes manifests against the schemas of several versions
    Manifests,
    /// The container file: build, serve, drain, come back, and what happens without walls
    Image,
    /// One host's manifest, played by Podman
    Kube,
    /// The systemd unit: verify, and run under a systemd of its own
    Unit,
    /// A database that is recovered to a point in time, and the hosts of its ledger
    Restore,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 5] = [Part::Manifests, Part::Image, Part::Kube, Part::Unit, Part::Restore];

    fn needs_podman(self) -> bool {
        !matches!(self, Part::Manifests | Part::Restore)
    }

    fn run(self, podman: Result<&Podman, &String>) -> Result<Told> {
        match (self, podman) {
            (Part::Manifests, _) => manifests::run(),
            (Part::Restore, _) => restore::run(),
            (Part::Image, Ok(podman)) => image::run(podman),
            (Part::Kube, Ok(podman)) => kube::run(podman),
            (Part::Unit, Ok(podman)) => unit::run(podman),
            (_, Err(why)) => Ok(Told::NotRun(format!("containers cannot be run on this machine: {why}"))),
        }
    }
}

/// Runs the parts one by one and says what became of each; whether all were run.
///
/// # Errors
/// A part fails: a file does not do what its page says.
pub fn run(parts: &[Part]) -> Result<bool> {
    let mut podman = Err("it was not asked for".to_owned());
    if parts.iter().any(|part| part.needs_podman()) {
        let started = Instant::now();
        podman = Podman::start()?;
        let state = if podman.is_ok() { "ready" } else { "NOT THERE" };
        println!("podman      {state}, {} s", started.elapsed().as_secs());
    }
    let mut all = true;
    for part in parts {
        let started = Instant::now();
        let name = format!("{part:?}").to_lowercase();
        let told = part.run(podman.as_ref()).map_err(|error| error.context(format!("the part `{name}`")))?;
        let seconds = started.elapsed().as_secs();
        let (lines, missing) = match told {
            Told::Seen(lines) => (lines, None),
            Told::Partly(lines, missing) => (lines, Some(missing)),
            Told::NotRun(why) => (Vec::new(), Some(why)),
        };
        if !lines.is_empty() {
            println!("{name:<11} ok, {seconds} s");
        }
        for line in lines {
            println!("              {line}");
        }
        if let Some(why) = missing {
            all = false;
            println!("{name:<11} NOT RUN: {why}");
        }
    }
    Ok(all)
}
