//! Other systems under the same oracle, each in the configuration that its own documentation calls best.
//!
//! An adapter is a program: `ADAPTER HOME PROVIDER-URL KIND TARGET WORDS` makes one call and prints what
//! Oncegate's calls print, as far as the oracle reads it. `tests/faults/baselines/README.md` says which
//! configuration was chosen and why.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::scenario::{Ask, Scenario};
use super::system::{Held, System};
use crate::client::Client;
use crate::harness::root;
use crate::provider::Provider;

/// One of the others.
#[derive(Debug)]
pub struct Library {
    /// Its name in rows.
    pub name: &'static str,
    /// Where it keeps its rows.
    pub ledger: &'static str,
    adapter: Adapter,
    /// Which of its ways, told in the environment.
    variant: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Adapter {
    /// A program beside this one.
    Program(&'static str),
    /// A Python file under `tests/faults/baselines`.
    Python(&'static str),
    /// A Node file there.
    Node(&'static str),
}

/// The name of [`PLAIN`].
pub const PLAIN_NAME: &str = "plain tool, argument hash";

const fn library(name: &'static str, ledger: &'static str, adapter: Adapter, variant: &'static str) -> Library {
    Library { name, ledger, adapter, variant }
}

/// A tool as most are written: an argument hash, a file of answers, three tries. Also the control.
pub static PLAIN: Library = library(PLAIN_NAME, "file", Adapter::Program("plain"), "");

const EXACTLY_ONCE: Adapter = Adapter::Python("exactly_once_tool.py");
const DBOS: Adapter = Adapter::Python("dbos_tool.py");
const RESTATE: Adapter = Adapter::Node("restate_tool.mjs");

/// The others. Where the documentation offers two ways that fit, both are driven.
pub static ALL: [Library; 6] = [
    library("effect-ledger 0.1.2", "sqlite", Adapter::Python("effect_ledger_tool.py"), ""),
    library("exactly-once 0.2.1, quarantine", "sqlite", EXACTLY_ONCE, "quarantine"),
    library("exactly-once 0.2.1, check_then_decide", "sqlite", EXACTLY_ONCE, "check"),
    library("DBOS 3.4.0, steps as they are", "sqlite", DBOS, "once"),
    library("DBOS 3.4.0, step retries", "sqlite", DBOS, "retries"),
    library("Restate 1.7.12", "restate", RESTATE, ""),
];

impl Library {
    /// With a provider and a folder of its own.
    ///
    /// # Errors
    /// A port or a folder cannot be had.
    pub fn set(&'static self, scenario: &'static Scenario) -> Result<Outside> {
        let folder = tempfile::Builder::new().prefix("oncegate-beside-").tempdir()?;
        Ok(Outside { library: self, scenario, folder, provider: Provider::start()? })
    }
}

/// A library, its folder and its provider.
pub struct Outside {
    library: &'static Library,
    scenario: &'static Scenario,
    folder: TempDir,
    provider: Provider,
}

impl Outside {
    fn adapter(&self) -> Result<Command> {
        let adapters = root().join("tests/faults/baselines");
        let built = root().join("target/baselines");
        Ok(match self.library.adapter {
            Adapter::Program(name) => Command::new(std::env::current_exe()?.with_file_name(name)),
            Adapter::Python(file) => {
                let mut command = Command::new(built.join("venv/bin/python"));
                command.arg(adapters.join(file)).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Adapter::Node(file) => {
                let mut command = Command::new(built.join("node_modules/.bin/node"));
                command.arg(adapters.join(file)).env("BASELINES", &built);
                command
            }
        })
    }

    fn end(&self) -> Result<()> {
        if matches!(self.library.adapter, Adapter::Node(_)) {
            let mut command = self.adapter()?;
            command.arg(self.folder.path()).arg("--down");
            command.output()?;
        }
        Ok(())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // A server that is gone already needs no end.
        self.end().ok();
    }
}

impl System for Outside {
    fn name(&self) -> &str {
        self.library.name
    }

    fn ledger(&self) -> &str {
        self.library.ledger
    }

    fn scenario(&self) -> &'static Scenario {
        self.scenario
    }

    fn provider(&self) -> Client {
        Client::new(&self.provider.url())
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn call(&self, ask: &Ask) -> Result<Command> {
        let mut command = self.adapter()?;
        let target = ask.targets.first().context("no target")?;
        command.arg(self.folder.path()).arg(self.provider.url()).args([self.scenario.kind, target, ask.words]);
        // A library talks to servers of its own as well; only what it says to the provider is counted.
        command.env("VARIANT", self.library.variant).env("KILL_PORT", self.provider().port());
        Ok(command)
    }

    fn reconcile(&self) -> Option<Command> {
        None
    }

    fn crowd(&self) -> Option<Command> {
        None
    }

    fn rows(&self) -> Result<Option<Vec<Held>>> {
        Ok(None)
    }

    fn stored(&self) -> Result<Option<String>> {
        Ok(None)
    }
}
