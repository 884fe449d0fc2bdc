//! Clients that time out, repeat, reword, cancel, and lose their server.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, is_replay, receipt, refunds, start, told, until_refunded, until_settled};
use crate::agent::{refund, with_limits};

const LIMITS: &str = "request-deadline = \"3s\"\nidle = \"3s\"\nanswer-within = \"1s\"";

fn lookups(harness: &Harness) -> usize {
    let log = harness.provider().log().unwrap();
    log.iter().filter(|one| one.path.starts_with("/returns/")).count()
}

#[test]
fn a_repeat_in_other_words_is_told_the_first_receipt() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let first = receipt(&client.call(TOOL, &refund("R-1", "arrived broken")).unwrap());
    is_replay(&client.call(TOOL, &refund("R-1", "arrived broken")).unwrap(), &first);
    let again = client.call(TOOL, &refund("R-1", "the kettle came in pieces")).unwrap();
    is_replay(&again, &first);
    assert_eq!(told(&again)["reworded"], true);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_server_killed_after_the_effect_is_followed_by_one_that_knows() {
    let harness = with_limits("refunds", LIMITS);
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut first = start(&harness);
    first.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    until_refunded(&harness);
    assert!(first.kill().unwrap().was_killed());

    let mut second = start(&harness);
    let found = receipt(&second.call(TOOL, &refund("R-1", "it was broken")).unwrap());
    let made = harness.provider().effects().unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].id, found);
    is_replay(&second.call(TOOL, &refund("R-1", "once more")).unwrap(), &found);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_slow_call_is_answered_in_time_and_its_result_waits_for_the_next() {
    let harness = with_limits("refunds", LIMITS);
    let settings = Settings { latency_ms: 700, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
    let mut client = start(&harness);
    let started = Instant::now();
    let pending = client.call(TOOL, &refund("R-1", "broken")).unwrap();
    assert_eq!(told(&pending)["status"], "pending", "{pending:#}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    thread::sleep(Duration::from_secs(3));
    let result = client.call(TOOL, &refund("R-1", "broken")).unwrap();
    let told = told(&result);
    assert_eq!((&told["status"], &told["replayed"]), (&json!("done"), &json!(false)), "{result:#}");
    assert_eq!(told["result"]["id"], told["effects"][0]["receipt"], "{result:#}");
    // The guest ran once: the second call took what the first one's guest had found.
    assert_eq!(lookups(&harness), 1);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_client_shortens_its_deadline() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = start(&harness);
    let started = Instant::now();
    let call = json!({
        "name": TOOL,
        "arguments": refund("R-1", "broken"),
        "_meta": { "dev.oncegate/answer-within-ms": 300 },
    });
    let pending = client.ask("tools/call", &call).unwrap();
    let took = started.elapsed();
    assert_eq!(told(&pending)["status"], "pending", "{pending:#}");
    assert!(took < Duration::from_millis(2_500), "{took:?}");
}

#[test]
fn a_cancelled_call_dispatches_nothing() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::Slow, "GET", "/returns/R-1", Some(1)).unwrap();
    let mut client = start(&harness);
    let id = client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    while lookups(&harness) == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    client.notify("notifications/cancelled", &json!({ "requestId": id, "reason": "the user left" })).unwrap();
    thread::sleep(Duration::from_secs(5));
    assert_eq!(refunds(&harness), 0);
    client.ask("ping", &json!({})).unwrap();
    assert!(client.heard.iter().all(|message| message["id"] != id), "{:?}", client.heard);
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn what_was_dispatched_is_not_cancelled() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = start(&harness);
    let id = client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    until_refunded(&harness);
    client.notify("notifications/cancelled", &json!({ "requestId": id })).unwrap();
    let receipt = receipt(&until_settled(|| client.call(TOOL, &refund("R-1", "again")).unwrap()));
    assert_eq!(harness.provider().effects().unwrap()[0].id, receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn progress_is_told_where_there_are_many_effects() {
    let harness = with_limits("campaign", "answer-within = \"60s\"");
    let settings = Settings { latency_ms: 100, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
    let mut client = start(&harness);
    let recipients: Vec<_> = (0..20).map(|n| format!("reader{n}@example.com")).collect();
    let call = json!({
        "name": "send-campaign",
        "arguments": { "subject": "News", "body": "Dear reader", "recipients": recipients },
        "_meta": { "progressToken": "p", "dev.oncegate/context": { "trigger": "T-1" } },
    });
    let result = client.ask("tools/call", &call).unwrap();
    assert_eq!(told(&result)["status"], "done", "{result:#}");
    let progress: Vec<f64> = client
        .heard
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message: &Value| message["params"]["progress"].as_f64().unwrap())
        .collect();
    assert!(progress.len() > 2 && progress.is_sorted_by(|a, b| a < b), "{progress:?}");
    assert_eq!(progress.last(), Some(&20.0));
    assert_eq!(harness.provider().count("email").unwrap(), 20);
}

/// What a cancelled call comes to would be told to whoever runs under its id, also to one that waited for it.
#[test]
fn an_id_under_which_a_call_was_cancelled_is_used_up() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let id = client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    let call = json!({ "name": TOOL, "arguments": refund("R-2", "under the same id") });
    let same = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call }).to_string();
    client.write(&same).unwrap();
    client.notify("notifications/cancelled", &json!({ "requestId": id })).unwrap();
    client.write(&same).unwrap();
    for _ in 0..2 {
        let answer = client.answer(id, ANSWER_WITHIN).unwrap();
        assert_eq!(answer["error"]["code"], -32600, "{answer:#}");
    }
    receipt(&client.call(TOOL, &refund("R-2", "under another id")).unwrap());
    assert_eq!(refunds(&harness), 1);
}
