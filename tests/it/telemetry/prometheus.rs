//! A real Prometheus of Debian's reads the figures, answers every query of the dashboard and evaluates every alert.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};

use oncegate_tests::client::Client;
use oncegate_tests::debian;
use oncegate_tests::harness::{Harness, Running, root};
use oncegate_tests::mcp::Stdio;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{TOOL, command, metrics, place, until};
use crate::agent::refund;

fn program(name: &str) -> PathBuf {
    debian::unpacked("prometheus").unwrap().join("usr/bin").join(name)
}

fn deployed(name: &str) -> PathBuf {
    root().join("deploy/prometheus").join(name)
}

#[track_caller]
fn promtool(words: &[&str], files: &[&Path], input: &str) {
    let mut command = Command::new(program("promtool"));
    command.args(words).args(files).stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words:?}: {told}\n{input}");
}

/// A server that has done all that its figures tell of.
fn busy(harness: &Harness) -> Stdio {
    let mut client = Stdio::start(&mut command(harness)).unwrap();
    for id in ["R-1", "R-1", "R-2"] {
        client.call(TOOL, &refund(id, "broken")).unwrap();
    }
    client
}

/// The official tool for servers: names, units and kinds as they should be.
#[test]
fn promtool_finds_nothing_wrong() {
    let harness = Harness::new("refunds").unwrap();
    let client = busy(&harness);
    promtool(&["check", "metrics"], &[], &metrics(&place(&client)));
    promtool(&["check", "rules"], &[&deployed("oncegate.rules.yml")], "");
    promtool(&["check", "config"], &[&deployed("prometheus.yml")], "");
}

struct Prometheus {
    _running: Running,
    client: Client,
}

impl Prometheus {
    /// As it is deployed, but more often.
    fn start(folder: &Path, target: &str) -> Self {
        let config = fs::read_to_string(deployed("prometheus.yml")).unwrap();
        let config = config.replace("127.0.0.1:9464", target).replace("15s", "1s");
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        fs::copy(deployed("oncegate.rules.yml"), folder.join("oncegate.rules.yml")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program("prometheus"));
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let running = Running::start(&mut command).unwrap();
        Self { _running: running, client: Client::new(&format!("http://127.0.0.1:{port}")) }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let (status, body) = self.client.send("GET", path, &[], b"").ok()?;
        let told = serde_json::from_slice(&body).ok()?;
        assert!(status != 400 && status != 422, "{path}: {told:#}");
        (status == 200).then_some(told)
    }

    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC).to_string();
        self.get(&format!("/api/v1/query?query={query}"))?["data"]["result"].as_array().cloned()
    }
}

/// All queries of the dashboard, as Grafana sends them.
fn queries() -> Vec<String> {
    let dashboard = fs::read_to_string(root().join("deploy/grafana/oncegate.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries.map(|query| query.replace("$__rate_interval", "1m").replace("$instance", ".*")).collect()
}

#[test]
fn every_query_is_answered_and_every_alert_evaluated() {
    let harness = Harness::new("refunds").unwrap();
    let client = busy(&harness);
    let place = place(&client);
    let prometheus = Prometheus::start(harness.folder(), place.trim_start_matches("http://"));
    let done = r#"oncegate_effects{state="done"} == 2"#;
    until(|| prometheus.query(done).filter(|found| found.len() == 1));
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let found = until(|| prometheus.query(&query).filter(|found| !found.is_empty()));
        assert!(found.iter().all(|series| series["value"][1].is_string()), "{query}: {found:#?}");
    }
    let rules = fs::read_to_string(deployed("oncegate.rules.yml")).unwrap();
    let named = rules.lines().filter(|line| line.trim_start().starts_with("- alert:")).count();
    until(|| {
        let told = prometheus.get("/api/v1/rules")?;
        let rules = told["data"]["groups"][0]["rules"].as_array()?.clone();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{told:#}");
        (rules.len() == named && rules.iter().all(|rule| rule["health"] == "ok")).then_some(())
    });
    // None of them fires for a server that is well, and one does when it is not.
    let firing = || prometheus.query(r#"ALERTS{alertname="OncegateHostSilent"}"#);
    assert_eq!(firing().unwrap().len(), 0);
    client.close(oncegate_tests::mcp::ANSWER_WITHIN).unwrap();
    until(|| firing().filter(|found| found.len() == 1));
}
