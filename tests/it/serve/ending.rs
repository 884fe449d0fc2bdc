//! However a server ends, what was dispatched is stored first.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Run};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, refunds, start};
use crate::agent::refund;

/// A server with a refund under way whose answer comes slowly.
fn under_way(harness: &Harness) -> Stdio {
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = start(harness);
    client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    let started = Instant::now();
    while refunds(harness) == 0 {
        assert!(started.elapsed() < ANSWER_WITHIN, "no refund was made");
        thread::sleep(Duration::from_millis(5));
    }
    client
}

#[track_caller]
fn is_stored(harness: &Harness, run: &Run) {
    assert_eq!(run.code, Some(0), "{run:?}");
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    let row: Value = serde_json::from_str(list.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(row["state"], "done", "{row:#}");
    assert_eq!(row["receipt"], harness.provider().effects().unwrap()[0].id.as_str());
    assert_eq!(refunds(harness), 1);
}

#[test]
fn at_the_end_of_input() {
    let harness = Harness::new("refunds").unwrap();
    let run = under_way(&harness).close(ANSWER_WITHIN).unwrap();
    is_stored(&harness, &run);
    // The client may still read: its call was answered.
    assert!(run.stdout.contains("\"status\":\"done\""), "{run:?}");
}

#[test]
fn at_sigterm() {
    let harness = Harness::new("refunds").unwrap();
    let client = under_way(&harness);
    let sent = Command::new("kill").args(["-TERM", &client.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    let run = client.wait(ANSWER_WITHIN).unwrap();
    is_stored(&harness, &run);
}

#[test]
fn a_guest_that_never_ends_does_not_keep_it() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
    let mut client = start(&harness);
    client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    thread::sleep(Duration::from_millis(500));
    let run = client.close(Duration::from_secs(20)).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(refunds(&harness), 0);
}

#[test]
fn with_nothing_said_there_is_nothing_to_end() {
    let harness = Harness::new("refunds").unwrap();
    let client = Stdio::unopened(&mut super::command(&harness)).unwrap();
    let run = client.close(ANSWER_WITHIN).unwrap();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
}
