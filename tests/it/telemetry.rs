//! What a server tells those who watch it: figures that are true, traces that are whole, and nothing that is secret.

mod collector;
mod figures;
mod health;
mod prometheus;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::client::Client;
use oncegate_tests::harness::{Harness, TENANT};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use serde_json::Value;

const TOOL: &str = "issue-refund";

/// `oncegate serve COMPONENT --metrics 127.0.0.1:0`, not yet started.
fn command(harness: &Harness) -> Command {
    let mut command = harness.command();
    command.arg("serve").arg(harness.component()).args(["--context", &format!("tenant={TENANT}")]);
    command.args(["--metrics", "127.0.0.1:0"]);
    command
}

/// Looks again until it is there.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "it did not come");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Where a server says that its figures are.
fn place(client: &Stdio) -> String {
    let said = |errors: String| {
        let line = errors.lines().find_map(|line| line.strip_prefix("figures at "))?.to_owned();
        Some(line.trim_end_matches("/metrics").to_owned())
    };
    until(|| said(client.errors()))
}

/// Status and body of a GET.
fn get(place: &str, path: &str) -> (u16, String) {
    let (status, body) = Client::new(place).send("GET", path, &[], b"").unwrap();
    (status, String::from_utf8(body).unwrap())
}

fn metrics(place: &str) -> String {
    let (status, text) = get(place, "/metrics");
    assert_eq!(status, 200, "{text}");
    text
}

fn ready(place: &str) -> (u16, Value) {
    let (status, text) = get(place, "/readyz");
    (status, serde_json::from_str(&text).unwrap())
}

fn until_ready(place: &str) {
    until(|| (ready(place).0 == 200).then_some(()));
}
