//! Figures are those of the provider and of the ledger, also after a restart.

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::Stdio;
use oncegate_tests::provider::mode::Mode;
use serde_json::Value;

use super::{TOOL, command, metrics, place, until};
use crate::agent::{refund, refunds};

/// The number behind a name and its labels.
fn figure(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|number| number.parse().unwrap())
}

/// So many effects of each state, as `ledger list` has them.
fn listed(harness: &Harness, state: &str) -> usize {
    let run = harness.run(&["ledger", "list", "--json", "--state", state]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout.lines().count()
}

fn call(client: &mut Stdio, id: &str) -> Value {
    client.call(TOOL, &refund(id, "broken")).unwrap()["structuredContent"].clone()
}

#[test]
fn figures_are_the_providers_and_the_ledgers() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = Stdio::start(&mut command(&harness)).unwrap();
    assert_eq!(call(&mut client, "R-1")["status"], "done");
    assert_eq!(call(&mut client, "R-1")["status"], "already_done");
    harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    assert_eq!(call(&mut client, "R-2")["status"], "failed");
    let refused = client.call(TOOL, &serde_json::json!({ "wrong": true })).unwrap();
    assert_eq!(refused["structuredContent"]["code"], "invalid_arguments", "{refused:#}");
    let place = place(&client);
    let text =
        until(|| Some(metrics(&place)).filter(|text| figure(text, "oncegate_effects{state=\"done\"}") == Some(1.0)));
    let is = |series: &str, number: usize| assert_eq!(figure(&text, series), Some(number as f64), "{series}\n{text}");
    is("oncegate_calls_total{tool=\"issue-refund\",status=\"done\"}", refunds(&harness));
    is("oncegate_calls_total{tool=\"issue-refund\",status=\"already_done\"}", 1);
    is("oncegate_calls_total{tool=\"issue-refund\",status=\"failed\"}", 1);
    is("oncegate_calls_total{tool=\"issue-refund\",status=\"refused\"}", 1);
    is("oncegate_refusals_total{code=\"invalid_arguments\"}", 1);
    is("oncegate_refusals_total{code=\"revoked\"}", 0);
    let sent = "oncegate_provider_requests_total{kind=\"effect\",operation=\"create-refund\",outcome";
    is(&format!("{sent}=\"2xx\"}}"), 1);
    is(&format!("{sent}=\"4xx\"}}"), 1);
    is("oncegate_provider_request_duration_seconds_count{kind=\"effect\",operation=\"create-refund\"}", 2);
    for state in ["done", "no-effect", "unknown", "dispatched"] {
        is(&format!("oncegate_effects{{state=\"{state}\"}}"), listed(&harness, state));
    }
    is("oncegate_ledger_queue_depth", 0);
    is("oncegate_calls_open", 0);
    assert!(figure(&text, "oncegate_ledger_commits_total{result=\"stored\"}").unwrap() >= 4.0, "{text}");
    is("oncegate_hosts{state=\"running\"}", 1);
}

#[test]
fn what_nobody_knows_is_counted_and_ages_also_after_a_restart() {
    let harness = crate::agent::with_limits("refunds", "request-deadline = \"1s\"\nidle = \"1s\"");
    harness.provider().mode(Mode::HangBefore, "POST", "/v1/refunds", None).unwrap();
    // Nor can it be found out.
    harness.provider().mode(Mode::Error503Before, "GET", "/v1/refunds", None).unwrap();
    let age = "oncegate_effects_oldest_age_seconds{state=\"unknown\"}";
    let mut before = 0.0;
    for restarts in 0..2 {
        let mut client = Stdio::start(&mut command(&harness)).unwrap();
        if restarts == 0 {
            assert_eq!(call(&mut client, "R-1")["status"], "pending");
        }
        let place = place(&client);
        let is_known = |text: &String| figure(text, "oncegate_effects{state=\"unknown\"}") == Some(1.0);
        let now = until(|| figure(&Some(metrics(&place)).filter(is_known)?, age).filter(|age| *age > before));
        assert_eq!((listed(&harness, "unknown"), refunds(&harness)), (1, 0));
        before = now;
    }
}

#[test]
fn nothing_but_declared_names_is_a_label() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = Stdio::start(&mut command(&harness)).unwrap();
    let done = client.call(TOOL, &refund("R-77", "in a hundred pieces")).unwrap();
    assert_eq!(done["structuredContent"]["status"], "done");
    assert!(client.ask("tools/call", &serde_json::json!({ "name": "invented", "arguments": {} })).is_err());
    let text = metrics(&place(&client));
    let receipt = harness.provider().effects().unwrap()[0].id.clone();
    for secret in ["R-77", "hundred", "invented", "acme", oncegate_tests::harness::SECRET, &receipt] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
}
