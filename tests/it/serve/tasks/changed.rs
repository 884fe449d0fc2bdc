//! Tasks whose server is another one when they are asked for: another policy, another component.

use std::fs;

use oncegate_tests::harness::{Harness, TENANT};
use oncegate_tests::provider::mode::Mode;
use sha2::{Digest, Sha256};

use super::*;
use crate::agent::{packed, with_limits};
use crate::attacks::change_policy;

/// Asks for a task for a while; it is never over.
#[track_caller]
fn stays_open(agent: &mut Agent, name: &str) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(6) {
        let task = agent.get(name).unwrap();
        assert_eq!(task["status"], "working", "{task:#}");
        thread::sleep(Duration::from_millis(300));
    }
}

/// A task whose process was killed when its refund had been made, or before that.
fn interrupted(harness: &Harness, revision: &str, made: bool, context: &Value) -> String {
    let (mode, method, path) = match made {
        true => (Mode::CompleteThenHang, "POST", "/v1/refunds"),
        false => (Mode::HangBefore, "GET", "/returns/R-1"),
    };
    harness.provider().mode(mode, method, path, Some(1)).unwrap();
    let mut first = Agent::start(harness, WAYS[usize::from(revision == NEWER)], "");
    let mut params = call(revision, &refund("R-1", "broken"));
    params["_meta"]["dev.oncegate/context"] = context.clone();
    let told = first.ask("tools/call", &params).unwrap();
    let task = if revision == OLDER { &told["task"] } else { &told };
    let name = task["taskId"].as_str().unwrap_or_else(|| panic!("{told:#}")).to_owned();
    until("no refund was made", || refunds(harness) == usize::from(made));
    first.kill();
    harness.provider().clear().unwrap();
    name
}

#[test]
fn a_withdrawn_grant_does_not_speak_for_what_was_done() {
    for revision in [OLDER, NEWER] {
        let harness = with_limits("refunds", SHORT);
        let name = interrupted(&harness, revision, true, &json!({}));
        let before = change_policy(&harness, "tenants = [\"acme\"]", "tenants = [\"second\"]");
        let mut second = Agent::start(&harness, WAYS[usize::from(revision == NEWER)], "");
        stays_open(&mut second, &name);
        // Neither is anything told that a withdrawn tool does not tell, nor is it said that nothing was sent.
        fs::write(harness.home().join("policy.toml"), before).unwrap();
        let receipt = super::super::receipt(&second.result(&name));
        second.kill();
        is_sound(&harness, &receipt);
    }
}

#[test]
fn a_fact_that_requests_may_not_give_any_more_is_none() {
    let harness = with_limits("refunds", SHORT);
    let name = interrupted(&harness, OLDER, false, &json!({ "trigger": "T-1" }));
    let rule = "trigger = [\"meta\", \"header\", \"serve\"]";
    let before = change_policy(&harness, rule, "trigger = [\"serve\"]");
    let mut second = Agent::start(&harness, WAYS[0], "");
    stays_open(&mut second, &name);
    assert_eq!(refunds(&harness), 0);
    fs::write(harness.home().join("policy.toml"), before).unwrap();
    let receipt = receipt(&second.result(&name));
    second.kill();
    is_sound(&harness, &receipt);
}

#[test]
fn another_component_with_a_tool_of_that_name_does_not_go_on_with_it() {
    let harness = with_limits("refunds", SHORT);
    let name = interrupted(&harness, OLDER, true, &json!({}));
    let folder = tempfile::tempdir().unwrap();
    let contract = fs::read_to_string(oncegate_tests::harness::root().join("guest-examples/refunds/contract.toml"));
    let other = packed(folder.path(), &contract.unwrap().replace("acme-refunds", "acme-credits"));
    let digest = Sha256::digest(fs::read(&other.component).unwrap());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = fs::read_to_string(harness.home().join("policy.toml")).unwrap();
    let own = policy.lines().find(|line| line.starts_with("digest")).unwrap().to_owned();
    change_policy(&harness, &own, &format!("digest = \"sha256:{digest}\""));
    let mut command = harness.command();
    command.arg("serve").arg(&other.component).args(["--context", &format!("tenant={TENANT}")]);
    let client = Stdio::start(after_a_second(&mut command)).unwrap();
    let mut second = Agent { wire: Wire::Stdio(Box::new(client)), revision: OLDER };
    stays_open(&mut second, &name);
    assert_eq!(refunds(&harness), 1, "a question about a task made another refund");
}
