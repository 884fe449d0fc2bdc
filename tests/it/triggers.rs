//! What starts a run tells one effect from another: the orchestrator's own event, not the day, not the
//! model, and not a value that changes in between.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use oncegate_tests::harness::{Harness, Options, Running};
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, refund, refunds};
use crate::attacks::{changed, clock};

const MAIL: &str = "send-campaign";
const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

fn mail(words: &str) -> serde_json::Value {
    json!({ "subject": format!("Your order, {words}"), "body": words, "recipients": ["ann@example.com"] })
}

fn emails(harness: &Harness) -> usize {
    harness.provider().count("email").unwrap()
}

/// The orchestrator passes the provider's own event identifier; its second delivery is the same event.
#[test]
fn a_webhook_that_is_delivered_twice_is_one_effect() {
    let harness = Harness::new("campaign").unwrap();
    let first = call(&harness, MAIL, &mail("first delivery"), &["trigger=evt_1", "run=1"]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let receipt = first.receipts()[0].to_owned();
    call(&harness, MAIL, &mail("second delivery"), &["trigger=evt_1", "run=2"]).is_replay_of(&receipt);
    assert_eq!(emails(&harness), 1);
}

#[test]
fn two_events_about_one_target_are_two_effects() {
    let harness = Harness::new("campaign").unwrap();
    let receipts = ["evt_1", "evt_2"].map(|event| {
        let heard = call(&harness, MAIL, &mail("the same words"), &[&format!("trigger={event}"), "run=1"]);
        assert_eq!(heard.status(), "done", "{event}: {heard:#?}");
        heard.receipts()[0].to_owned()
    });
    assert_ne!(receipts[0], receipts[1]);
    assert_eq!(emails(&harness), 2);
}

/// Seconds from now to the next time of day, UTC.
fn until(hour: u64, minute: u64) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let day = 24 * 3600;
    let wanted = hour * 3600 + minute * 60;
    i64::try_from((wanted + day - now % day) % day).unwrap()
}

fn at(harness: &Harness, clock: &Path, seconds: i64, words: &str) -> Heard {
    let mut command: Command = harness.call(MAIL, &mail(words), &["trigger=daily:2026-03-01", "run=1"]);
    command.env("LD_PRELOAD", clock).env("CLOCK_SHIFT", seconds.to_string());
    hear(&mut command)
}

#[test]
fn an_occurrence_that_is_replayed_past_midnight_is_one_effect() {
    let harness = Harness::new("campaign").unwrap();
    let clock = clock(harness.folder());
    let start = until(23, 59);
    let first = at(&harness, &clock, start, "before midnight");
    assert_eq!(first.status(), "done", "{first:#?}");
    at(&harness, &clock, start + 120, "after midnight").is_replay_of(first.receipts()[0]);
    assert_eq!(emails(&harness), 1);
}

/// A refund for whoever holds the return, whom the shop may name in another way a moment later.
fn by_holder(pin: &str) -> (Harness, TempDir) {
    let (guest, folder) = changed(&[(
        "role = \"key\",   from = \"lookup:get-return\", value = \"/id\"",
        &format!("role = \"key\", from = \"lookup:get-return\", value = \"/holder\"{pin}"),
    )]);
    let harness = Harness::with(guest, Options::default()).unwrap();
    holder(&harness, "anna");
    (harness, folder)
}

fn holder(harness: &Harness, name: &str) {
    let goods = json!({ "id": "R-7", "holder": name, "charge": "ch_7", "amount": 100, "status": "received" });
    harness.provider().seed(&json!({ "returns": [goods] })).unwrap();
}

const PIN: &str = ", pin = \"trigger\"";

#[test]
fn a_pinned_value_is_the_first_of_its_trigger() {
    let (harness, _folder) = by_holder(PIN);
    let first = call(&harness, TOOL, &refund("R-7", "x"), &["trigger=evt_1"]);
    assert_eq!(first.receipts(), ["re_000001"], "{first:#?}");
    holder(&harness, "berta");
    for _ in 0..2 {
        call(&harness, TOOL, &refund("R-7", "y"), &["trigger=evt_1"]).is_replay_of("re_000001");
    }
    let body = harness.provider().effects().unwrap()[0].object.to_string();
    assert!(body.contains("anna"), "{body}");
    // Another trigger resolves anew.
    let other = call(&harness, TOOL, &refund("R-7", "z"), &["trigger=evt_2"]);
    assert_eq!(other.receipts(), ["re_000002"], "{other:#?}");
    assert_eq!(refunds(&harness), 2);
    let without = call(&harness, TOOL, &refund("R-7", "z"), &[]);
    assert_eq!(without.json["code"], "context_missing", "{without:#?}");
    assert_eq!(refunds(&harness), 2);
}

/// Without the pin the same calls are two effects: that is what it is for.
#[test]
fn without_a_pin_a_changing_value_is_another_effect() {
    let (harness, _folder) = by_holder("");
    assert_eq!(call(&harness, TOOL, &refund("R-7", "x"), &["trigger=evt_1"]).status(), "done");
    holder(&harness, "berta");
    assert_eq!(call(&harness, TOOL, &refund("R-7", "y"), &["trigger=evt_1"]).status(), "done");
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn callers_that_resolve_different_values_at_once_are_one_effect() {
    let (harness, _folder) = by_holder(PIN);
    for round in 0..4 {
        let trigger = format!("trigger=round-{round}");
        let running: Vec<Running> = (0..6)
            .map(|n| {
                holder(&harness, &format!("holder-{round}-{n}"));
                let mut command = harness.call(TOOL, &refund("R-7", "at once"), &[&trigger]);
                let running = Running::start(&mut command).unwrap();
                std::thread::sleep(Duration::from_millis(30));
                running
            })
            .collect();
        for one in running {
            let heard = Heard::of(&one.wait(LONG).unwrap());
            assert!(heard.is_success() || heard.status() == "pending", "{round}: {heard:#?}");
        }
        assert!(call(&harness, TOOL, &refund("R-7", "afterwards"), &[&trigger]).is_success());
        assert_eq!(refunds(&harness), round + 1);
    }
}
