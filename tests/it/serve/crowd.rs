//! Many sessions over HTTP at once. The whole minute with a thousand is `cargo xtask sessions`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::mcp::http::{NEWER, OLDER, Server};
use oncegate_tests::mcp::sessions::{self, Plan};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use super::{TOOL, http, receipt, refunds};
use crate::agent::{refund, with_limits};

/// More guests than may compute at once.
const GUESTS: u64 = 80;

#[test]
fn of_many_sessions_some_vanish_and_every_effect_happens_once() {
    let harness = with_limits("refunds", "answer-within = \"20s\"");
    harness.provider().settings(&Settings { latency_ms: 20, ..Settings::default() }).unwrap();
    let token = http::token(&harness, "acme");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let think = Duration::from_millis(500);
    let plan = Plan { sessions: 200, lasting: Duration::ZERO, refunds: 2, think, seed: 1 };
    let report = sessions::run(&server, &token, &plan).unwrap();
    report.judge(&harness).unwrap();
    assert!(report.vanished > 0, "{report:?}");
    assert!(report.receipts.len() > plan.sessions, "{report:?}");
    assert!(refunds(&harness) > plan.sessions);
}

#[test]
fn more_clients_than_a_shell_allows_open_files() {
    let harness = Harness::new("refunds").unwrap();
    let token = http::token(&harness, "acme");
    let serve = http::command(&harness);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 100; exec \"$@\"", "sh"]).arg(serve.get_program()).args(serve.get_args());
    limited.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let server = Server::start(&mut limited).unwrap();
    let client = server.client(&token);
    let idle: Vec<_> = (0..200).map(|_| client.leave_open(b"POST ").unwrap()).collect();
    let started = Instant::now();
    while sessions::handles(server.pid()).unwrap() < idle.len() {
        assert!(started.elapsed() < ANSWER_WITHIN, "they were not all accepted");
        thread::sleep(Duration::from_millis(20));
    }
    receipt(&client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn calls_that_wait_for_a_provider_take_nobodys_turn() {
    let harness = with_limits("refunds", "request-deadline = \"60s\"\nidle = \"60s\"\nanswer-within = \"60s\"");
    let provider = harness.provider();
    provider.mode(Mode::HangBefore, "GET", "/returns/*", Some(GUESTS)).unwrap();
    let token = http::token(&harness, "acme");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let client = server.client(&token);
    let hang = |n| {
        let params = json!({ "name": TOOL, "arguments": refund(&format!("R-{n}"), "broken") });
        client.leave_open(&client.request(NEWER, "tools/call", &params)).unwrap()
    };
    let held: Vec<_> = (1..=GUESTS).map(hang).collect();
    let started = Instant::now();
    while provider.met().unwrap() < GUESTS {
        assert!(started.elapsed() < ANSWER_WITHIN, "the guests did not all begin");
        thread::sleep(Duration::from_millis(20));
    }
    receipt(&client.call(NEWER, TOOL, &refund("R-100", "broken")).unwrap());
    assert_eq!(refunds(&harness), 1);

    // Nobody waits for them any more, so their guests are stopped.
    drop(held);
    receipt(&client.call(NEWER, TOOL, &refund("R-101", "in pieces")).unwrap());
    assert_eq!(refunds(&harness), 2);
}
