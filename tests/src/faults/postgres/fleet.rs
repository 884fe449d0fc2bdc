//! Identical hosts of one ledger: the built program, each with a data directory, a policy and a head marker of its own,
//! as on machines of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::super::oncegate::edited;
use super::super::scenario::{Ask, Scenario};
use super::super::system::{Held, System};
use super::super::trouble;
use super::serving::Serving;
use crate::client::Client;
use crate::harness::{Guest, Harness, Options, Run, TENANT};
use crate::shim;

/// A provider that hangs or a database that is away must not take minutes of a campaign.
const LIMITS: &str = "idle = \"600ms\"\nrequest-deadline = \"4s\"\nconnect-within = \"1s\"\nsend-within = \"1s\"";
/// A busy machine may take longer than `send-within` before the first byte.
const CLEAN_CALLS_MAX: usize = 20;
/// How often a whole database is asked that did not answer, and the pause between.
const ASKED_MAX: usize = 8;
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// How one host differs from the others.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// `HOST:PORT/DATABASE`, or several hosts.
    pub server: String,
    /// What its commands begin with.
    pub inside: Vec<String>,
    /// Its clock is so many seconds ahead.
    pub ahead: i64,
}

struct Host {
    home: PathBuf,
    place: Place,
    serving: Mutex<Option<Arc<Serving>>>,
}

/// The hosts, and the provider they share.
pub struct Fleet {
    harness: Harness,
    scenario: &'static Scenario,
    provider: Client,
    component: TempDir,
    password: PathBuf,
    hosts: Vec<Host>,
    name: &'static str,
}

/// What a fleet is made of.
pub struct Plan {
    /// Its name in rows.
    pub name: &'static str,
    /// One for each host.
    pub places: Vec<Place>,
    /// Each host has a ledger of its own: a control.
    pub apart: bool,
    /// Another provider than the one on loopback.
    pub provider: Option<String>,
}

impl Fleet {
    /// Makes the ledger with the first host; the others are trusted on record, as a new host is.
    ///
    /// # Errors
    /// The program is not built, or refuses.
    pub fn new(scenario: &'static Scenario, plan: Plan) -> Result<Self> {
        let example = Guest::example(scenario.name)?;
        let component = tempfile::tempdir()?;
        let file = component.path().join("edited.wasm");
        let clean = &trouble::ALL[0];
        fs::write(&file, edited(&fs::read(&example.component)?, scenario.edits, clean)?)?;
        let mut options = Options { limits: LIMITS.to_owned(), ..Options::default() };
        if let Some(url) = &plan.provider {
            options.endpoints = ["shop", "pay"].map(|name| (name.to_owned(), url.clone())).into();
        }
        let harness = Harness::with(Guest { component: file, contract: example.contract }, options)?;
        let provider = plan.provider.as_deref().map_or_else(|| harness.provider(), Client::new);
        let password = super::node::password_file(harness.folder())?;
        let mut fleet = Self { harness, scenario, provider, component, password, hosts: Vec::new(), name: plan.name };
        for place in plan.places {
            fleet.join(place, plan.apart)?;
        }
        Ok(fleet)
    }

    fn join(&mut self, place: Place, apart: bool) -> Result<()> {
        let home = self.component.path().join(format!("host-{}", self.hosts.len()));
        fs::create_dir_all(home.join("ledger"))?;
        fs::copy(self.harness.home().join("policy.toml"), home.join("policy.toml"))?;
        let first = self.hosts.is_empty();
        if let Some(first) = self.hosts.first().filter(|first| first.home.join("cache").exists()) {
            // It has compiled the tool already.
            crate::databases::run(Command::new("cp").arg("-a").arg(first.home.join("cache")).arg(&home))?;
        }
        self.hosts.push(Host { home, place, serving: Mutex::default() });
        let own = self.hosts.len() - 1;
        if first || apart {
            self.told(own, &["ledger", "init"])?;
            return if first { self.know_one(own) } else { Ok(()) };
        }
        self.trust(own)
    }

    /// Accepts the ledger as it is, on this host.
    ///
    /// # Errors
    /// The program refuses.
    pub fn trust(&self, host: usize) -> Result<()> {
        self.told(host, &["ledger", "trust", "--actor", "ann", "--reason", "a host that joins"]).map(drop)
    }

    /// Without a known object a lookup that finds nothing proves nothing.
    fn know_one(&self, host: usize) -> Result<()> {
        let known = [(self.scenario.target)(0)];
        for _ in 0..CLEAN_CALLS_MAX {
            let ask = Ask { targets: &known, words: "a known object", value: None };
            let run = Run::of(&mut self.call_at(host, &ask)?)?;
            match (run.status()?.as_str(), run.json()?["next_action"].as_str()) {
                ("done" | "already_done", _) => return Ok(()),
                (_, Some("call_again" | "wait")) => {}
                _ => bail!("a clean call failed: {run:?}"),
            }
        }
        bail!("{CLEAN_CALLS_MAX} clean calls did not come to an end")
    }

    /// Runs a command on a host that has to succeed; what it printed.
    ///
    /// # Errors
    /// It does not.
    pub fn told(&self, host: usize, words: &[&str]) -> Result<String> {
        let run = Run::of(self.command(host)?.args(words))?;
        ensure!(run.code == Some(0), "host {host}: `oncegate {}`: {}{}", words.join(" "), run.stderr, run.stdout);
        Ok(run.stdout)
    }

    fn host(&self, host: usize) -> Result<&Host> {
        self.hosts.get(host).context("no such host")
    }

    /// The program on a host.
    fn command(&self, host: usize) -> Result<Command> {
        let Host { home, place, .. } = self.host(host)?;
        let program = self.harness.command();
        let mut words = place.inside.iter().map(String::as_str).chain(program.get_program().to_str());
        let mut command = Command::new(words.next().context("no program")?);
        command.args(words).env("ONCEGATE_HOME", home).env("ONCEGATE_ISOLATION", "none").envs(self.harness.secrets());
        if place.ahead != 0 {
            command.env("LD_PRELOAD", shim::library("clock")?).env("CLOCK_SHIFT", place.ahead.to_string());
        }
        let (data, password) = (home.join("ledger"), &self.password);
        let own = format!("data={}&passfile={}&sslmode=disable", data.display(), password.display());
        command.arg("--ledger").arg(format!("postgres://ledger@{}?{own}", place.server));
        Ok(command)
    }

    fn call_at(&self, host: usize, ask: &Ask) -> Result<Command> {
        let mut command = self.command(host)?;
        let arguments = (self.scenario.arguments)(ask).to_string();
        command.arg("call").arg(self.harness.component()).args([self.scenario.tool, "--json", "--args", &arguments]);
        command.args(["--context", &format!("tenant={TENANT}")]);
        Ok(command)
    }

    /// How many hosts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The server of a host, if it runs.
    ///
    /// # Errors
    /// There is no such host.
    pub fn serving(&self, host: usize) -> Result<Option<Arc<Serving>>> {
        let serving = self.host(host)?.serving.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(serving.clone().filter(|serving| serving.runs()))
    }

    /// Starts the server of a host that has none.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, host: usize) -> Result<()> {
        if self.serving(host)?.is_some() {
            return Ok(());
        }
        let mut command = self.command(host)?;
        command.arg("serve").arg(self.harness.component()).args(["--context", &format!("tenant={TENANT}")]);
        let serving = Serving::start(&mut command).with_context(|| format!("host {host}"))?;
        *self.host(host)?.serving.lock().unwrap_or_else(PoisonError::into_inner) = Some(serving);
        Ok(())
    }

    /// Starts all that do not run, side by side.
    ///
    /// # Errors
    /// One does not start.
    pub fn start_all(&self) -> Result<()> {
        thread::scope(|scope| {
            let starting: Vec<_> = (0..self.len()).map(|host| scope.spawn(move || self.start(host))).collect();
            starting.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| bail!("a start panicked")))
        })
    }

    /// The tool's arguments for a target, in these words.
    #[must_use]
    pub fn arguments(&self, target: &str, words: &str) -> Value {
        (self.scenario.arguments)(&Ask { targets: &[target.to_owned()], words, value: None })
    }

    /// Finds out about open rows, on this host.
    ///
    /// # Errors
    /// It cannot be done.
    pub fn reconcile_at(&self, host: usize) -> Result<()> {
        patiently(|| {
            let run = Run::of(self.command(host)?.args(["ledger", "reconcile"]))?;
            ensure!(matches!(run.code, Some(0 | 4)), "reconciling on host {host} failed: {run:?}");
            Ok(())
        })
    }

    /// Its rows, as this host shows them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn rows_at(&self, host: usize) -> Result<Vec<Held>> {
        let rows = patiently(|| self.told(host, &["ledger", "list", "--json", "--limit", "0"]))?;
        let rows: Result<_, _> = rows.lines().map(serde_json::from_str).collect();
        rows.context("a line of `oncegate ledger list`")
    }
}

/// Asks again, as a person would: on a busy machine a server takes longer to answer than a command waits for it.
fn patiently<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ASKED_MAX {
        if let Ok(told) = ask() {
            return Ok(told);
        }
        thread::sleep(ASKED_EVERY);
    }
    ask()
}

impl System for Fleet {
    fn name(&self) -> &str {
        self.name
    }

    fn ledger(&self) -> &str {
        "postgres"
    }

    fn scenario(&self) -> &'static Scenario {
        self.scenario
    }

    fn provider(&self) -> Client {
        self.provider.clone()
    }

    fn folder(&self) -> &Path {
        self.harness.folder()
    }

    fn call(&self, ask: &Ask) -> Result<Command> {
        self.call_at(0, ask)
    }

    fn reconcile(&self) -> Option<Command> {
        let mut command = self.command(0).ok()?;
        command.args(["ledger", "reconcile"]);
        Some(command)
    }

    fn crowd(&self) -> Option<Command> {
        None
    }

    fn rows(&self) -> Result<Option<Vec<Held>>> {
        self.rows_at(0).map(Some)
    }

    fn stored(&self) -> Result<Option<String>> {
        self.told(0, &["ledger", "export"]).map(Some)
    }
}
