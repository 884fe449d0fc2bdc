//! However a server ends, what was dispatched is stored first.

use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio as Pipe};
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Run};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, refunds, start, until_refunded};
use crate::agent::refund;

/// A server with a refund under way whose answer comes slowly.
fn under_way(harness: &Harness) -> Stdio {
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = start(harness);
    client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    until_refunded(harness);
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

/// A server and a client that has said what it says and reads nothing.
fn unread(harness: &Harness, messages: &[Value]) -> Child {
    let mut child =
        super::command(harness).stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::null()).spawn().unwrap();
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let stdin = child.stdin.as_mut().unwrap();
    for message in [&hello, &begun].into_iter().chain(messages) {
        writeln!(stdin, "{message}").unwrap();
    }
    stdin.flush().unwrap();
    child
}

fn call() -> Value {
    let params = json!({ "name": TOOL, "arguments": refund("R-1", "broken") });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

fn ended(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > ANSWER_WITHIN {
            child.kill().unwrap();
            panic!("it did not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn is_done(harness: &Harness) {
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    let row: Value = serde_json::from_str(list.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(row["receipt"], harness.provider().effects().unwrap()[0].id.as_str(), "{row:#}");
    assert_eq!((&row["state"], refunds(harness)), (&json!("done"), 1), "{row:#}");
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_it() {
    let harness = Harness::new("refunds").unwrap();
    let list = |id: i32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
    // Their answers are more than what a pipe and the server hold.
    let messages: Vec<_> = [call()].into_iter().chain((3..400).map(list)).collect();
    let mut child = unread(&harness, &messages);
    until_refunded(&harness);
    drop(child.stdin.take());
    assert!(ended(&mut child).success());
    is_done(&harness);
}

#[test]
fn a_client_that_vanishes_leaves_a_stored_effect() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut child = unread(&harness, &[call()]);
    until_refunded(&harness);
    drop((child.stdin.take(), child.stdout.take()));
    ended(&mut child);
    is_done(&harness);
}

#[test]
fn a_line_that_is_cut_off_by_the_end_is_no_call() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let line = call().to_string();
    client.write_bytes(&line.as_bytes()[..line.len() - 1]).unwrap();
    let run = client.close(ANSWER_WITHIN).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("-32700"), "{run:?}");
    assert_eq!(refunds(&harness), 0);
}
