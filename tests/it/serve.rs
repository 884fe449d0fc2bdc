//! Agents over MCP: whatever a client does, each effect happens once, and its first receipt is told.

mod answers;
mod client_keys;
mod conformance;
mod crowd;
mod desktop;
mod elicitation;
mod ending;
mod fixtures;
mod folders;
mod hostile_clients;
mod hostile_http;
mod http;
mod input_required;
mod judges;
mod langgraph;
mod listing;
mod oauth;
mod openai_agents;
mod policy;
mod proxy;
mod repeats;
mod sdk;
mod sessions;
mod several;
mod shown;
mod status;
mod streams;
mod tasks;
mod typescript;
mod vanished;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, TENANT};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use serde_json::Value;

use crate::agent::refunds;

const TOOL: &str = "issue-refund";

/// `oncegate serve COMPONENT --context tenant=acme`, not yet started.
fn command(harness: &Harness) -> Command {
    let mut command = harness.command();
    command.arg("serve").arg(harness.component()).args(["--context", &format!("tenant={TENANT}")]);
    command
}

fn start(harness: &Harness) -> Stdio {
    Stdio::start(&mut command(harness)).unwrap()
}

fn until_refunded(harness: &Harness) {
    let started = Instant::now();
    while refunds(harness) == 0 {
        assert!(started.elapsed() < ANSWER_WITHIN, "no refund was made");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Calls until the answer is not pending any more.
fn until_settled(mut call: impl FnMut() -> Value) -> Value {
    let started = Instant::now();
    loop {
        let result = call();
        if told(&result)["status"] != "pending" {
            return result;
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "{result:#}");
        thread::sleep(Duration::from_secs(1));
    }
}

/// The answer's object, which must be the same as its only text.
#[track_caller]
fn told(result: &Value) -> &Value {
    let told = &result["structuredContent"];
    let content = result["content"].as_array().unwrap();
    assert_eq!(content.len(), 1, "{result:#}");
    let text: Value = serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, *told, "{result:#}");
    let failed = matches!(told["status"].as_str(), Some("failed" | "refused"));
    assert_eq!(result["isError"], failed, "{result:#}");
    told
}

/// The most memory that a process has had.
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[track_caller]
fn receipt(result: &Value) -> String {
    let told = told(result);
    assert!(matches!(told["status"].as_str(), Some("done" | "already_done")), "{told:#}");
    told["effects"][0]["receipt"].as_str().unwrap().to_owned()
}

#[track_caller]
fn is_replay(result: &Value, first: &str) {
    assert_eq!(told(result)["status"], "already_done", "{result:#}");
    assert_eq!(receipt(result), first);
}
