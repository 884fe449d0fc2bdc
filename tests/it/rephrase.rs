//! The Rephrase Test: however an agent repeats itself, one refund, and each later answer is a
//! success that carries the first receipt. The provider's own count is the only oracle.

use std::process::Command;
use std::time::Duration;

use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, hear, refund, refunds, with_limits};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

/// Makes the first refund of R-1 and returns its receipt.
fn first(harness: &Harness, context: &[&str]) -> String {
    let heard = call(harness, TOOL, &refund("R-1", "arrived broken"), context);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(heard.json["replayed"], false, "{heard:#?}");
    assert_eq!(heard.json["result"]["amount"], 50_000, "{heard:#?}");
    let receipts = heard.receipts();
    assert_eq!(receipts.len(), 1, "{heard:#?}");
    assert_eq!(heard.json["result"]["id"], receipts[0], "{heard:#?}");
    receipts[0].to_owned()
}

/// A refund that the provider made and never spoke of; the agent gave up on it.
fn timeout_after_success(harness: &Harness) -> Heard {
    let provider = harness.provider();
    let mode = Mode::CompleteThenHang;
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    call(harness, TOOL, &refund("R-1", "arrived broken"), &[])
}

/// A harness that gives up on a silent provider soon.
fn impatient() -> Harness {
    let limits = "request-deadline = \"3s\"\nidle = \"3s\"\nanswer-within = \"1s\"";
    with_limits("refunds", limits)
}

#[test]
fn rung_1_the_same_call_twice() {
    let harness = Harness::new("refunds").unwrap();
    let context = ["run=run-1", "trigger=ticket-1"];
    let receipt = first(&harness, &context);
    // A new process each time: this is rung 2, the new call identifier, as well.
    for _ in 0..3 {
        let again = call(&harness, TOOL, &refund("R-1", "arrived broken"), &context);
        again.is_replay_of(&receipt);
        assert_eq!(again.json["result"]["id"], receipt, "{again:#?}");
        assert_ne!(again.json["reworded"], true, "{again:#?}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn rung_3_a_replay_of_all_calls() {
    let harness = Harness::new("refunds").unwrap();
    let returns = ["R-1", "R-2", "R-3"];
    let play = || returns.map(|id| call(&harness, TOOL, &refund(id, "checkpoint"), &["run=a"]));
    let firsts = play().map(|heard| {
        assert_eq!(heard.status(), "done", "{heard:#?}");
        heard.receipts()[0].to_owned()
    });
    for _ in 0..2 {
        for (again, receipt) in play().iter().zip(&firsts) {
            again.is_replay_of(receipt);
        }
    }
    assert_eq!(refunds(&harness), returns.len());
}

#[test]
fn rung_4_other_words() {
    let harness = Harness::new("refunds").unwrap();
    let receipt = first(&harness, &[]);
    let whole = json!({ "return_id": "R-1", "amount": 50_000, "reason": "It was broken." });
    let wordings = [
        refund("R-1", "The kettle came in pieces, so we pay back the price."),
        refund("R-1", ""),
        refund("R-1", "ARRIVED BROKEN"),
        // The amount on the return, said aloud, is no other amount.
        whole,
    ];
    for wording in wordings {
        let again = call(&harness, TOOL, &wording, &[]);
        again.is_replay_of(&receipt);
        assert_eq!(again.json["reworded"], true, "{again:#?}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn rung_5_the_next_day() {
    let harness = Harness::new("refunds").unwrap();
    let receipt = first(&harness, &["run=monday", "trigger=ticket-1"]);
    let context = ["run=tuesday", "trigger=phone-call", "parent=somebody"];
    let again = call(&harness, TOOL, &refund("R-1", "customer asked again"), &context);
    again.is_replay_of(&receipt);
    assert_eq!(again.json["reworded"], true, "{again:#?}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn timeout_after_success_is_settled_by_the_next_call() {
    let harness = impatient();
    let receipt = lost_and_unsettled(&harness, &Settings::default());

    let settled = call(&harness, TOOL, &refund("R-1", "second try"), &[]);
    assert_eq!(settled.status(), "done", "{settled:#?}");
    assert_eq!(settled.receipts(), [receipt.as_str()], "{settled:#?}");
    let again = call(&harness, TOOL, &refund("R-1", "third try"), &[]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn timeout_after_success_is_settled_by_the_first_process_where_it_can() {
    let harness = impatient();
    let lost = timeout_after_success(&harness);
    assert_eq!(lost.status(), "pending", "{lost:#?}");
    // The process stayed until it knew: the provider's list told it.
    let receipt = harness.provider().effects().unwrap()[0].id.clone();
    let again = call(&harness, TOOL, &refund("R-1", "second try"), &[]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_return_that_reads_refunded_by_then_is_no_error() {
    let harness = impatient();
    let follows = Settings { shop_follows: true, ..Settings::default() };
    let receipt = lost_and_unsettled(&harness, &follows);
    // The guest sees "refunded", fails, and asks for no effect.
    let settled = call(&harness, TOOL, &refund("R-1", "second try"), &[]);
    assert!(settled.is_success(), "{settled:#?}");
    assert_eq!(settled.receipts(), [receipt.as_str()], "{settled:#?}");
    let again = call(&harness, TOOL, &refund("R-1", "third try"), &["run=other"]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

/// A refund that the provider made and never spoke of, while its lists were down as well; then it
/// works again with these settings. Returns the receipt that nobody has heard of.
fn lost_and_unsettled(harness: &Harness, then: &Settings) -> String {
    let lists_down = Settings { lists_down: true, ..then.clone() };
    harness.provider().settings(&lists_down).unwrap();
    let lost = timeout_after_success(harness);
    assert_eq!(lost.status(), "pending", "{lost:#?}");
    assert_eq!(lost.code, Some(4), "{lost:#?}");
    assert_eq!(lost.json["next_action"], "wait", "{lost:#?}");
    for reason in ["while it is down", "still down"] {
        let open = call(harness, TOOL, &refund("R-1", reason), &[]);
        assert_eq!(open.status(), "pending", "{open:#?}");
        assert_eq!(open.json["detail"], "unknown", "{open:#?}");
    }
    assert_eq!(refunds(harness), 1);
    harness.provider().settings(then).unwrap();
    harness.provider().effects().unwrap()[0].id.clone()
}

#[test]
fn a_return_that_reads_refunded_after_a_clean_refund_is_already_done() {
    let harness = Harness::new("refunds").unwrap();
    let settings = Settings { shop_follows: true, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
    let receipt = first(&harness, &[]);
    for reason in ["arrived broken", "other words"] {
        let again = call(&harness, TOOL, &refund("R-1", reason), &["run=next"]);
        again.is_replay_of(&receipt);
    }
    // Another return with which nothing was done is no success of ours.
    let seeds = json!({ "returns": [
        { "id": "R-9", "charge": "ch_9", "amount": 100, "status": "refunded" },
    ] });
    harness.provider().seed(&seeds).unwrap();
    let other = call(&harness, TOOL, &refund("R-9", "by hand"), &[]);
    assert_eq!(other.status(), "refused", "{other:#?}");
    assert_eq!(other.json["code"], "tool_failed", "{other:#?}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn another_amount_is_refused_by_name() {
    let harness = Harness::new("refunds").unwrap();
    let receipt = first(&harness, &[]);
    let less = json!({ "return_id": "R-1", "amount": 400, "reason": "arrived broken" });
    let refused = call(&harness, TOOL, &less, &[]);
    assert_eq!(refused.status(), "refused", "{refused:#?}");
    let code = &refused.json["code"];
    assert_eq!(code, "idempotency_key_reused", "{refused:#?}");
    assert_eq!(refused.code, Some(3), "{refused:#?}");
    let message = refused.json["message"].as_str().unwrap();
    assert!(message.contains("amount"), "{refused:#?}");
    assert!(!message.contains("reason"), "{refused:#?}");
    // The true one is still answered.
    let again = call(&harness, TOOL, &refund("R-1", "arrived broken"), &[]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn another_amount_is_refused_while_the_first_runs() {
    let harness = Harness::new("refunds").unwrap();
    let (provider, mode) = (harness.provider(), Mode::CompleteThenHang);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let running = start_and_wait_for_refund(&harness);
    let less = json!({ "return_id": "R-1", "amount": 400, "reason": "arrived broken" });
    let refused = call(&harness, TOOL, &less, &[]);
    assert_eq!(refused.status(), "refused", "{refused:#?}");
    let code = &refused.json["code"];
    assert_eq!(code, "idempotency_key_reused", "{refused:#?}");
    running.kill().unwrap();
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn more_than_the_return_says_is_refused_before_anything_is_sent() {
    let harness = Harness::new("refunds").unwrap();
    let more = json!({ "return_id": "R-1", "amount": 50_001, "reason": "arrived broken" });
    let refused = call(&harness, TOOL, &more, &[]);
    assert_eq!(refused.status(), "refused", "{refused:#?}");
    assert_eq!(refunds(&harness), 0);
    first(&harness, &[]);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_refusal_by_the_provider_is_proof_and_the_next_call_may_send() {
    let harness = Harness::new("refunds").unwrap();
    let (provider, mode) = (harness.provider(), Mode::Reject402);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let failed = call(&harness, TOOL, &refund("R-1", "arrived broken"), &[]);
    assert_eq!(failed.status(), "failed", "{failed:#?}");
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    let reason = &failed.json["result"]["provider_reason"];
    assert!(reason.is_string(), "{failed:#?}");
    assert_eq!(refunds(&harness), 0);
    let receipt = first(&harness, &[]);
    let again = call(&harness, TOOL, &refund("R-1", "other words"), &[]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn eight_processes_at_once_make_one_refund() {
    let harness = Harness::new("refunds").unwrap();
    let calls = (0..8).map(|n| {
        let mut command = harness.call(TOOL, &refund("R-1", &format!("wording {n}")), &[]);
        Running::start(&mut command).unwrap()
    });
    let all: Vec<Running> = calls.collect();
    let heard: Vec<Heard> = all.into_iter().map(|running| Heard::of(&running.wait(LONG).unwrap())).collect();
    assert_eq!(refunds(&harness), 1, "{heard:#?}");
    let receipt = harness.provider().effects().unwrap()[0].id.clone();
    for one in &heard {
        let is_open = one.status() == "pending" && one.json["detail"] == "in_progress";
        assert!(one.is_success() || is_open, "{one:#?}");
        if one.is_success() {
            assert_eq!(one.receipts(), [receipt.as_str()], "{one:#?}");
        }
    }
    assert!(heard.iter().any(Heard::is_success), "{heard:#?}");
    let last = call(&harness, TOOL, &refund("R-1", "after the crowd"), &[]);
    last.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn eight_processes_with_two_amounts_make_one_refund() {
    let harness = Harness::new("refunds").unwrap();
    let calls = (0..8).map(|n| {
        let arguments = json!({ "return_id": "R-1", "amount": 100 + n % 2, "reason": "x" });
        Running::start(&mut harness.call(TOOL, &arguments, &[])).unwrap()
    });
    let all: Vec<Running> = calls.collect();
    let heard: Vec<Heard> = all.into_iter().map(|running| Heard::of(&running.wait(LONG).unwrap())).collect();
    assert_eq!(refunds(&harness), 1, "{heard:#?}");
    let made = &harness.provider().effects().unwrap()[0].object["amount"];
    for (n, one) in heard.iter().enumerate() {
        if *made == json!(100 + n % 2) {
            assert_ne!(one.status(), "refused", "{one:#?}");
        } else {
            assert_eq!(one.json["code"], "idempotency_key_reused", "{one:#?}");
        }
    }
}

/// Starts a call in a process of its own and waits until the provider has counted its refund.
fn start_and_wait_for_refund(harness: &Harness) -> Running {
    let before = refunds(harness);
    let mut command = harness.call(TOOL, &refund("R-1", "the first one"), &[]);
    let running = Running::start(&mut command).unwrap();
    for _ in 0..500 {
        if refunds(harness) > before {
            return running;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no refund was made; {:?}", running.kill().unwrap());
}

#[test]
fn a_second_process_hears_of_the_first_one_that_still_hangs() {
    let harness = with_limits("refunds", "request-deadline = \"8s\"\nidle = \"8s\"\nattach = \"1s\"");
    let (provider, mode) = (harness.provider(), Mode::CompleteThenHang);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let owner = start_and_wait_for_refund(&harness);

    // The first process has the ledger; this one reads and appends through it.
    let second = call(&harness, TOOL, &refund("R-1", "the second one"), &[]);
    assert_eq!(second.status(), "pending", "{second:#?}");
    assert_eq!(second.json["detail"], "in_progress", "{second:#?}");
    assert_eq!(refunds(&harness), 1);

    // Another key is not held up by the first.
    let other = call(&harness, TOOL, &refund("R-2", "another return"), &[]);
    assert_eq!(other.status(), "done", "{other:#?}");
    assert_eq!(refunds(&harness), 2);

    let run = owner.wait(LONG).unwrap();
    let heard = Heard::of(&run);
    assert!(heard.is_success() || heard.status() == "pending", "{heard:#?}");
    let settled = call(&harness, TOOL, &refund("R-1", "the third one"), &[]);
    assert!(settled.is_success(), "{settled:#?}");
    assert_eq!(settled.receipts(), ["re_000001"], "{settled:#?}");
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn a_second_process_takes_over_from_one_that_was_killed() {
    let harness = Harness::new("refunds").unwrap();
    let (provider, mode) = (harness.provider(), Mode::CompleteThenHang);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let owner = start_and_wait_for_refund(&harness);
    let mut attached = harness.call(TOOL, &refund("R-1", "the second one"), &[]);
    let attached = Running::start(&mut attached).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    owner.kill().unwrap();
    let heard = Heard::of(&attached.wait(LONG).unwrap());
    assert!(heard.is_success() || heard.status() == "pending", "{heard:#?}");
    let settled = call(&harness, TOOL, &refund("R-1", "the third one"), &[]);
    assert!(settled.is_success(), "{settled:#?}");
    assert_eq!(settled.receipts(), ["re_000001"], "{settled:#?}");
    assert_eq!(refunds(&harness), 1);
}

/// A provider's way to fail after it made the refund, and what the first answer may be.
#[test]
fn every_way_to_fail_after_success_ends_in_the_first_receipt() {
    let modes = [
        Mode::CompleteThenReset,
        Mode::Error500After,
        Mode::Error429After,
        Mode::Garbage,
        Mode::Truncated,
        Mode::Big20Mb,
        Mode::NonUtf8,
        Mode::ResetAfterHeaders,
        Mode::HeldOpen,
        Mode::Slow,
    ];
    let harness = with_limits("refunds", "request-deadline = \"5s\"\nidle = \"2s\"");
    for (n, mode) in modes.into_iter().enumerate() {
        let id = format!("R-{}", 100 + n);
        let provider = harness.provider();
        provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
        let heard = call(&harness, TOOL, &refund(&id, "first"), &[]);
        let first_ok = heard.is_success() || heard.status() == "pending";
        assert!(first_ok, "{mode:?}: {heard:#?}");
        assert_eq!(refunds(&harness), n + 1, "{mode:?}: {heard:#?}");
        let settled = call(&harness, TOOL, &refund(&id, "second"), &[]);
        assert!(settled.is_success(), "{mode:?}: {settled:#?}\nfirst {heard:#?}");
        let receipt = provider.effects().unwrap()[n].id.clone();
        let again = call(&harness, TOOL, &refund(&id, "third"), &["run=b"]);
        again.is_replay_of(&receipt);
        assert_eq!(refunds(&harness), n + 1, "{mode:?}");
    }
}

#[test]
fn what_fails_before_it_happened_is_never_told_as_done() {
    let modes = [Mode::HangBefore, Mode::AcceptThenHang, Mode::ResetBefore, Mode::Error503Before, Mode::Error429Before];
    let harness = with_limits("refunds", "request-deadline = \"2s\"\nidle = \"1s\"");
    for (n, mode) in modes.into_iter().enumerate() {
        let id = format!("R-{}", 200 + n);
        let provider = harness.provider();
        provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
        for reason in ["first", "second", "third"] {
            let heard = call(&harness, TOOL, &refund(&id, reason), &[]);
            // Nothing proves that it did not happen: the index may lag for 90 s.
            assert_eq!(heard.status(), "pending", "{mode:?}: {heard:#?}");
            assert!(heard.receipts().is_empty(), "{mode:?}: {heard:#?}");
        }
        assert_eq!(refunds(&harness), 0, "{mode:?}");
    }
}

#[test]
fn json_and_files_say_the_same() {
    let harness = Harness::new("refunds").unwrap();
    let receipt = first(&harness, &[]);
    let file = harness.folder().join("arguments.json");
    std::fs::write(&file, refund("R-1", "from a file").to_string()).unwrap();
    let mut command: Command = harness.command();
    command.arg("call").arg(harness.component());
    command.args([TOOL, "--json", "--context", "tenant=acme", "--args"]);
    command.arg(format!("@{}", file.display()));
    let again = hear(&mut command);
    again.is_replay_of(&receipt);
    let run: Run = Run::of(&mut harness.call(TOOL, &Value::Null, &[])).unwrap();
    assert_eq!(run.status().unwrap(), "refused", "{run:?}");
    assert_eq!(refunds(&harness), 1);
}
