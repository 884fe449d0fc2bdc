//! Oncegate in the matrix: the built program, one process a call.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;

use super::scenario::{Ask, Scenario};
use super::system::{Held, System};
use super::trouble::Trouble;
use crate::client::Client;
use crate::harness::{Guest, Harness, Options, Run, TENANT};

/// The control that shows what the ledger is for: each call finds a new one.
pub const FORGETFUL: &str = "oncegate, its ledger thrown away";

/// Deadlines of a provider that hangs: a matrix meets thousands of them. A call of hundreds of effects
/// is not answered before its end.
const LIMITS: &str = "idle = \"600ms\"\nrequest-deadline = \"4s\"\nconnect-within = \"1s\"\n\
                      send-within = \"1s\"\nanswer-within = \"300s\"\nwall-time = \"300s\"";

/// The program, its folder and its provider.
pub struct Oncegate {
    harness: Harness,
    scenario: &'static Scenario,
    _component: TempDir,
    forgets: bool,
}

impl Oncegate {
    /// A new ledger and a new provider; one that `forgets` gets another new ledger for each call. One clean effect is there: without a known object a lookup that
    /// finds nothing proves nothing.
    ///
    /// # Errors
    /// Something is not built.
    pub fn set(scenario: &'static Scenario, trouble: &Trouble, forgets: bool) -> Result<Self> {
        let example = Guest::example(scenario.name)?;
        let folder = tempfile::tempdir()?;
        let component = folder.path().join("edited.wasm");
        let edits: Vec<_> = scenario.edits.iter().chain(trouble.edits()).copied().collect();
        fs::write(&component, edited(&fs::read(&example.component)?, &edits, trouble)?)?;
        let options = Options { limits: LIMITS.to_owned(), ..Options::default() };
        let harness = Harness::with(Guest { component, contract: example.contract }, options)?;
        let set = Self { harness, scenario, _component: folder, forgets };
        set.know_one()?;
        Ok(set)
    }

    fn forget(&self) -> Result<()> {
        for entry in fs::read_dir(self.harness.home())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ledger.redb")) {
                if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
        }
        let run = self.harness.run(&["ledger", "init"])?;
        if run.code == Some(0) { Ok(()) } else { bail!("a new ledger failed: {run:?}") }
    }

    fn know_one(&self) -> Result<()> {
        let known = [(self.scenario.target)(0)];
        for _ in 0..CLEAN_CALLS_MAX {
            let run = Run::of(&mut self.call(&Ask { targets: &known, words: "a known object", value: None })?)?;
            match (run.status()?.as_str(), run.json()?["next_action"].as_str()) {
                ("done" | "already_done", _) => return Ok(()),
                (_, Some("call_again")) => {}
                _ => bail!("a clean call failed: {run:?}"),
            }
        }
        bail!("{CLEAN_CALLS_MAX} clean calls did not come to an end")
    }
}

/// A busy machine may take longer than `send-within` before the first byte, or than a call waits.
const CLEAN_CALLS_MAX: usize = 20;

/// A contract is text inside the component: another text of the same length leaves it whole. A line that
/// the scenario does not have is none of its business.
pub(super) fn edited(component: &[u8], edits: &[(&str, &str)], trouble: &Trouble) -> Result<Vec<u8>> {
    let mut bytes = component.to_vec();
    for (from, to) in edits {
        if from.len() != to.len() {
            bail!("{from} and {to} differ in length");
        }
        let places: Vec<usize> = memchr::memmem::find_iter(&bytes, from.as_bytes()).collect();
        if places.is_empty() && !trouble.edits().iter().any(|(optional, _)| optional == from) {
            bail!("the contract has no line {from}");
        }
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    Ok(bytes)
}

impl System for Oncegate {
    fn name(&self) -> &str {
        if self.forgets { FORGETFUL } else { "oncegate" }
    }

    fn ledger(&self) -> &str {
        "redb"
    }

    fn scenario(&self) -> &'static Scenario {
        self.scenario
    }

    fn provider(&self) -> Client {
        self.harness.provider()
    }

    fn folder(&self) -> &Path {
        self.harness.folder()
    }

    fn call(&self, ask: &Ask) -> Result<Command> {
        if self.forgets {
            self.forget()?;
        }
        let arguments = (self.scenario.arguments)(ask);
        Ok(self.harness.call(self.scenario.tool, &arguments, self.scenario.context))
    }

    fn reconcile(&self) -> Option<Command> {
        let mut command = self.harness.command();
        command.args(["ledger", "reconcile"]);
        Some(command)
    }

    fn crowd(&self) -> Option<Command> {
        let near = std::env::current_exe().ok()?.with_file_name("callers");
        let mut command = Command::new(near);
        command.env("ONCEGATE_HOME", self.harness.home()).envs(self.harness.secrets());
        command.arg(self.harness.home()).arg(self.harness.component()).arg(self.scenario.tool);
        Some(command)
    }

    fn line(&self, ask: &Ask) -> String {
        let facts = self.scenario.context.iter().filter_map(|fact| fact.split_once('='));
        let mut context: serde_json::Map<_, _> = facts.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        context.insert("tenant".to_owned(), json!(TENANT));
        json!({ "arguments": (self.scenario.arguments)(ask), "context": context }).to_string()
    }

    fn rows(&self) -> Result<Option<Vec<Held>>> {
        let run = self.harness.run(&["ledger", "list", "--json", "--limit", "0"])?;
        if run.code != Some(0) {
            bail!("`oncegate ledger list` failed: {}", run.stderr);
        }
        let rows = run.stdout.lines().map(serde_json::from_str);
        Ok(Some(rows.collect::<Result<_, _>>().context("a line of `oncegate ledger list`")?))
    }

    fn stored(&self) -> Result<Option<String>> {
        let run = self.harness.run(&["ledger", "export"])?;
        if run.code != Some(0) {
            bail!("`oncegate ledger export` failed: {}", run.stderr);
        }
        Ok(Some(run.stdout))
    }
}
