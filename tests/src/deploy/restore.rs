//! The database page's recovery to a point in time, with two hosts of the built program.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Told;
use super::site::{Site, TOOL};
use crate::databases::archived::{Archived, PASSWORD};
use crate::harness::{self, Run, TENANT};

pub(super) fn run() -> Result<Told> {
    let (site, server) = (Site::near()?, Archived::start()?);
    let (one, other) = (Host::new(&site, &server)?, Host::new(&site, &server)?);
    one.done(&["ledger", "init"])?;
    let first = one.refund("R-1")?.context("the first refund")?;
    ensure!(other.refund("R-1")?.is_none(), "a host without a head marker made or told a refund");
    other.trust("a new host")?;
    ensure!(other.refund("R-1")?.as_ref() == Some(&first), "the other host does not tell the first one's receipt");
    server.base_backup()?;
    let second = one.refund("R-2")?.context("the second refund")?;
    let time = server.now()?;
    one.refund("R-3")?.context("the third refund")?;
    server.archive_all()?;
    server.restore(&time)?;

    ensure!(one.refund("R-3")?.is_none(), "who made the third refund goes on over a database that forgot it");
    ensure!(other.refund("R-3")?.is_none(), "the other host makes what the first one had made");
    site.made(3, &first)?;
    one.trust("restored to before a mistake; the third refund was looked up")?;
    for host in [&one, &other] {
        ensure!(host.refund("R-2")?.as_ref() == Some(&second), "the second receipt is another");
    }
    site.made(3, &second)?;
    Ok(Told::Seen(vec![
        "two hosts over one database: the second tells the first one's receipt".to_owned(),
        "pg_basebackup, archive, recovery_target_time: both hosts refuse, nothing is made twice".to_owned(),
        "after `ledger trust` both go on and tell what the database still knows".to_owned(),
    ]))
}

/// A host with its folder; each command is a process of its own.
struct Host<'a> {
    site: &'a Site,
    home: TempDir,
    url: String,
}

impl<'a> Host<'a> {
    fn new(site: &'a Site, server: &Archived) -> Result<Self> {
        let home = tempfile::tempdir()?;
        site.files(home.path(), &path(&home.path().join("pay")))?;
        let password = home.path().join("database");
        fs::write(&password, PASSWORD)?;
        let url = server.url(&path(home.path()), &path(&password));
        Ok(Self { site, home, url })
    }

    fn run(&self, words: &[&str]) -> Result<Run> {
        let mut command = Command::new(harness::program()?);
        let run = Run::of(command.env("ONCEGATE_HOME", self.home.path()).args(["--ledger", &self.url]).args(words))?;
        ensure!(!run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD), "a password is shown by {words:?}");
        Ok(run)
    }

    fn done(&self, words: &[&str]) -> Result<()> {
        let run = self.run(words)?;
        ensure!(run.code == Some(0), "{words:?}: {}{}", run.stdout, run.stderr);
        Ok(())
    }

    fn trust(&self, reason: &str) -> Result<()> {
        self.done(&["ledger", "trust", "--actor", "ann", "--reason", reason])
    }

    /// The receipt; none where the host refuses.
    fn refund(&self, id: &str) -> Result<Option<String>> {
        let arguments = json!({ "return_id": id, "reason": "broken" }).to_string();
        let component = path(self.site.component());
        let tenant = format!("tenant={TENANT}");
        let run = self.run(&["call", &component, TOOL, "--json", "--args", &arguments, "--context", &tenant])?;
        let told: Value = run.json()?;
        let receipt = told["effects"][0]["receipt"].as_str().map(str::to_owned);
        ensure!(receipt.is_some() || run.code != Some(0), "neither a receipt nor a refusal: {told:#}");
        Ok(receipt)
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
