//! Exclusive claims: a refund and a store credit for one return are one effect, whoever asks first. The
//! note that the hostile guest can leave stands for the credit.

use std::fs;
use std::path::PathBuf;

use oncegate_ledger::{Effects, Event, StateTag, Stored};
use oncegate_sandbox::outcome::Status;
use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::killat::{log_calls, read_calls};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, hear};
use crate::attacks::change_policy;
use crate::kills::points;
use crate::many::at_once;

const CLAIM: &str = "\n[[exclusive]]\nname = \"compensation\"\noperations = [\"create-refund\", \"leave-note\"]\n\
                     by = { create-refund = \"return\", leave-note = \"thread\" }\n";
const PATIENT: &str = "answer-within = \"100s\"\nwall-time = \"100s\"\nsend-within = \"60s\"\nattach = \"20s\"\n";

fn compensations(limits: &str) -> Harness {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let component = Guest::example("refunds").unwrap().component.with_file_name("hostile.wasm");
    let contract = fs::read_to_string(root.join("guests/hostile/contract.toml")).unwrap();
    let options = Options { limits: limits.to_owned(), policy: CLAIM.to_owned(), ..Options::default() };
    Harness::with(Guest { component, contract }, options).unwrap()
}

/// The script of a call: looks the return up, then asks for these.
fn asking(id: &str, effects: &[(&str, &str)]) -> Value {
    let mut script = vec![json!({ "fetch": { "operation": "get-return", "fields": [] } })];
    script.extend(effects.iter().map(|(operation, field)| {
        let fields = [json!({ "name": field, "value": { "text": "as the model words it" } })];
        json!({ "perform": { "operation": operation, "fields": fields } })
    }));
    json!({ "return_id": id, "script": script })
}

const REFUND: (&str, &str) = ("create-refund", "reason");
const CREDIT: (&str, &str) = ("leave-note", "text");

fn ask(harness: &Harness, id: &str, effect: (&str, &str)) -> Heard {
    call(harness, "act", &asking(id, &[effect]), &[])
}

fn counts(harness: &Harness) -> (usize, usize) {
    let provider = harness.provider();
    (provider.count("refund").unwrap(), provider.count("note").unwrap())
}

#[test]
fn refund_and_credit_for_one_return_are_one_effect() {
    let harness = compensations("");
    let refund = ask(&harness, "R-1", REFUND);
    assert_eq!(refund.status(), "done", "{refund:#?}");
    for _ in 0..2 {
        let credit = ask(&harness, "R-1", CREDIT);
        credit.is_replay_of(refund.receipts()[0]);
        assert_eq!(credit.json["effects"][0]["label"], refund.json["effects"][0]["label"], "{credit:#?}");
        // The guest hears that nothing was sent, and of no answer that it did not ask for.
        assert!(credit.json["result"][1].as_str().unwrap().contains("NotPermitted"), "{credit:#?}");
    }
    let credit = ask(&harness, "R-2", CREDIT);
    assert_eq!(credit.status(), "done", "{credit:#?}");
    ask(&harness, "R-2", REFUND).is_replay_of(credit.receipts()[0]);
    assert_eq!(counts(&harness), (1, 1));
    let both = call(&harness, "both", &asking("R-3", &[REFUND, CREDIT]), &[]);
    assert_eq!(both.status(), "done", "{both:#?}");
    assert_eq!(counts(&harness), (2, 1));
}

#[test]
fn what_is_proven_not_to_have_happened_frees_the_purpose() {
    let harness = compensations("");
    harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    let refund = ask(&harness, "R-1", REFUND);
    assert_eq!(refund.status(), "failed", "{refund:#?}");
    let credit = ask(&harness, "R-1", CREDIT);
    assert_eq!(credit.status(), "done", "{credit:#?}");
    ask(&harness, "R-1", REFUND).is_replay_of(credit.receipts()[0]);
    assert_eq!(counts(&harness), (0, 1));
}

#[test]
fn what_may_have_happened_keeps_the_purpose() {
    let harness = compensations("");
    harness.provider().mode(Mode::Error503Before, "POST", "/v1/refunds", Some(1)).unwrap();
    let refund = ask(&harness, "R-1", REFUND);
    assert_eq!(refund.json["detail"], "unknown", "{refund:#?}");
    for _ in 0..2 {
        let credit = ask(&harness, "R-1", CREDIT);
        assert_eq!((credit.status(), credit.json["detail"].as_str()), ("pending", Some("unknown")), "{credit:#?}");
    }
    assert_eq!(counts(&harness), (0, 0));
    // Done, and the answer lost: the other one finds it out.
    harness.provider().mode(Mode::Error500After, "POST", "/v1/refunds", Some(1)).unwrap();
    let refund = ask(&harness, "R-2", REFUND);
    let credit = ask(&harness, "R-2", CREDIT);
    assert_eq!(credit.status(), "already_done", "{refund:#?} {credit:#?}");
    assert_eq!(counts(&harness), (1, 0));
}

#[test]
fn a_frozen_key_freezes_the_purpose() {
    let harness = compensations("");
    harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    assert_eq!(ask(&harness, "R-1", REFUND).status(), "failed");
    let url = format!("redb:{}", harness.home().join("ledger.redb").display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let effects = Effects::new(oncegate_ledger::open(&url).await.unwrap());
        let id = effects.ledger.list(StateTag::NoEffect, None, 1).await.unwrap()[0].id;
        let version = effects.get(id).await.unwrap().unwrap().version;
        let event = Event::Diverged { at: 1, why: "it was charged after all".into(), evidence: Stored::empty() };
        effects.append(id, version, event, Vec::new()).await.unwrap();
    });
    let credit = ask(&harness, "R-1", CREDIT);
    assert_eq!((credit.status(), credit.json["detail"].as_str()), ("pending", Some("frozen")), "{credit:#?}");
    assert_eq!(counts(&harness), (0, 0));
}

#[test]
fn raced_by_64_callers_each_they_are_one() {
    let harness = compensations(PATIENT);
    let calls =
        (0..128).map(|n| ("act", asking("R-1", &[if n % 2 == 0 { REFUND } else { CREDIT }]), Vec::new())).collect();
    let heard = at_once(&harness, 2, calls);
    let (refunds, notes) = counts(&harness);
    assert_eq!(refunds + notes, 1, "{refunds} refunds and {notes} notes");
    let first = heard.iter().find(|one| one.status == Status::Done);
    let receipt = first.and_then(|one| one.effects[0].receipt.clone()).expect("nobody was told that it is done");
    for one in &heard {
        let told = matches!(one.status, Status::Done | Status::AlreadyDone);
        assert!(told || one.status == Status::Pending, "{one:#?}");
        assert!(!told || one.effects[0].receipt.as_ref() == Some(&receipt), "{one:#?}");
    }
    // Whoever asks afterwards hears of that one.
    for effect in [REFUND, CREDIT] {
        ask(&harness, "R-1", effect).is_replay_of(&receipt);
    }
}

/// Receipts of what the provider did for one return.
fn made(harness: &Harness, id: &str) -> Vec<String> {
    let effects = harness.provider().effects().unwrap().into_iter();
    let for_it = |object: &Value| object["metadata"]["return"] == id || object["thread"] == id;
    effects.filter(|effect| for_it(&effect.object)).map(|effect| effect.id).collect()
}

/// Wherever the refund is cut off, what is asked for next is the credit and the refund again.
#[test]
fn a_kill_anywhere_does_not_make_two() {
    let harness = compensations("");
    // Opens the ledger and binds what is bound at first use.
    assert_eq!(ask(&harness, "R-1", REFUND).status(), "done");
    let log = harness.folder().join("calls");
    let mut watched = harness.call("act", &asking("R-2", &[REFUND]), &[]);
    log_calls(&mut watched, &log).unwrap();
    assert_eq!(hear(&mut watched).status(), "done");
    let mut by_answer = [0, 0, 0];
    for (n, point) in points(&read_calls(&log).unwrap()).into_iter().enumerate() {
        let id = format!("R-{}", n + 100);
        let mut command = harness.call("act", &asking(&id, &[REFUND]), &[]);
        point.apply(&mut command).unwrap();
        Run::of(&mut command).unwrap();
        for effect in [CREDIT, REFUND] {
            let heard = ask(&harness, &id, effect);
            let made = made(&harness, &id);
            assert!(made.len() <= 1, "{point}: {made:?} {heard:#?}");
            match heard.status() {
                "done" => by_answer[0] += 1,
                "already_done" => by_answer[1] += 1,
                _ => by_answer[2] += 1,
            }
            let right = match heard.status() {
                "done" | "already_done" => heard.receipts() == made,
                status => status == "pending" && heard.receipts().is_empty(),
            };
            assert!(right, "{point}: {made:?} {heard:#?}");
        }
    }
    // Some were cut off before they had the purpose, some after they had used it, some in between.
    assert!(by_answer.iter().all(|count| *count > 0), "{by_answer:?}");
}

#[test]
fn a_claim_by_a_field_that_is_not_there_sends_nothing() {
    let harness = compensations("");
    change_policy(&harness, "leave-note = \"thread\"", "leave-note = \"text\"");
    let credit = ask(&harness, "R-1", CREDIT);
    assert_eq!(
        (credit.status(), credit.json["code"].as_str()),
        ("refused", Some("effect_not_permitted")),
        "{credit:#?}"
    );
    let component = harness.component().to_str().unwrap();
    let explained = harness.run(&["policy", "explain", component, "leave-note", "--tenant", "acme"]).unwrap();
    assert!(explained.stdout.contains("[[exclusive]]"), "{}", explained.stdout);
    assert_eq!(counts(&harness), (0, 0));
}
