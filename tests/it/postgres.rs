//! Several hosts of one ledger on a real PostgreSQL: the built program, each host with a folder of its own, and the
//! provider's own count of what happened.

#[path = "../../host/ledger/tests/it/postgres/cluster.rs"]
#[allow(dead_code, reason = "the ledger's own tests use the rest")]
mod cluster;
mod ends;
mod hosts;
mod moves;

use std::fs;
use std::process::Command;
use std::time::Duration;

use oncegate_tests::harness::{Harness, Run};
use serde_json::Value;
use tempfile::TempDir;

use crate::agent::Heard;
use cluster::{Cluster, PASSWORD};

const TOOL: &str = "issue-refund";
/// A machine that does everything else too.
const WITHIN: Duration = Duration::from_secs(120);

/// Hosts of one ledger in a database of its own.
struct Fleet<'a> {
    harness: Harness,
    cluster: &'a Cluster,
    database: String,
    homes: Vec<TempDir>,
}

impl<'a> Fleet<'a> {
    /// So many hosts: the first made the ledger, the others were let in by an operator.
    fn of(cluster: &'a Cluster, hosts: usize) -> Self {
        let mut fleet = Self::without_ledger(cluster);
        for host in 0..hosts {
            fleet.add_home();
            let words: &[&str] =
                if host == 0 { &["ledger", "init"] } else { &["ledger", "trust", "--reason", "a new host"] };
            fleet.fine(host, words);
        }
        fleet
    }

    fn without_ledger(cluster: &'a Cluster) -> Self {
        let harness = Harness::new("refunds").unwrap();
        let database = cluster.place("").database;
        Self { harness, cluster, database, homes: Vec::new() }
    }

    fn add_home(&mut self) {
        let home = tempfile::tempdir().unwrap();
        fs::copy(self.harness.home().join("policy.toml"), home.path().join("policy.toml")).unwrap();
        self.homes.push(home);
    }

    fn url(&self) -> String {
        format!("postgres://ledger:{PASSWORD}@127.0.0.1:{}/{}?sslmode=disable", self.cluster.port, self.database)
    }

    fn at(&self, host: usize, mut command: Command) -> Command {
        command.env("ONCEGATE_HOME", self.homes[host].path()).env("USER", "ann").args(["--ledger", &self.url()]);
        command
    }

    /// Any command on that host. The password is in nothing that it says.
    #[track_caller]
    fn run(&self, host: usize, words: &[&str]) -> Run {
        let mut command = self.harness.command();
        command.args(words);
        heard(&mut self.at(host, command))
    }

    #[track_caller]
    fn fine(&self, host: usize, words: &[&str]) -> Run {
        let run = self.run(host, words);
        assert_eq!(run.code, Some(0), "{words:?}: {run:?}");
        run
    }

    /// A refund on that host, not yet started.
    fn refund(&self, host: usize, return_id: &str, reason: &str) -> Command {
        self.at(host, self.harness.call(TOOL, &crate::agent::refund(return_id, reason), &[]))
    }

    #[track_caller]
    fn call(&self, host: usize, return_id: &str, reason: &str) -> Heard {
        Heard::of(&heard(&mut self.refund(host, return_id, reason)))
    }

    fn refunds(&self) -> usize {
        crate::agent::refunds(&self.harness)
    }

    /// Lets so much time pass since any host of the ledger was last heard of, by the database's clock.
    fn silence(&self) {
        self.cluster.sql(&self.database, "UPDATE oncegate_writer SET seen = now() - interval '1 hour'");
    }

    fn hosts(&self, host: usize) -> Vec<Value> {
        let run = self.fine(host, &["ledger", "hosts", "--all", "--json"]);
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[track_caller]
fn heard(command: &mut Command) -> Run {
    let run = Run::of(command.arg("-vv")).unwrap();
    assert!(!run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD), "{run:?}");
    run
}
