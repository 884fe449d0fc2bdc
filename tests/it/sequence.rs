//! Effects that legitimately repeat, told apart by the orchestrator's ordinal; and reads, which need
//! no ledger.

use oncegate_tests::harness::Harness;
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, hear, with_limits};

const NOTE: &str = "append-note";

fn note(harness: &Harness, n: &str, text: &str) -> Heard {
    note_by(harness, &["trigger=ticket-1", &format!("sequence={n}")], text)
}

fn note_by(harness: &Harness, context: &[&str], text: &str) -> Heard {
    call(harness, NOTE, &json!({ "thread": "T-1", "text": text }), context)
}

fn notes(harness: &Harness) -> usize {
    harness.provider().count("note").unwrap()
}

#[track_caller]
fn is_refused(heard: &Heard, code: &str) {
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(heard.json["code"], code, "{heard:#?}");
    assert_eq!(heard.code, Some(3), "{heard:#?}");
}

#[test]
fn each_number_is_one_note_and_repeats_replay() {
    let harness = Harness::new("notes").unwrap();
    let receipts: Vec<String> = ["1", "2", "3"]
        .map(|n| {
            // The same words each time: only the number tells them apart.
            let heard = note(&harness, n, "called the customer");
            assert_eq!(heard.status(), "done", "{n}: {heard:#?}");
            heard.receipts()[0].to_owned()
        })
        .into();
    assert_eq!(notes(&harness), 3);
    for (n, receipt) in ["1", "2", "3"].iter().zip(&receipts).rev() {
        note(&harness, n, "called the customer").is_replay_of(receipt);
        note(&harness, n, "spoke on the telephone").is_replay_of(receipt);
    }
    assert_eq!(notes(&harness), 3);
}

#[test]
fn a_gap_is_refused() {
    let harness = Harness::new("notes").unwrap();
    is_refused(&note(&harness, "2", "too early"), "sequence_gap");
    assert_eq!(note(&harness, "1", "first").status(), "done");
    is_refused(&note(&harness, "3", "too early"), "sequence_gap");
    is_refused(&note(&harness, "1000000", "too early"), "sequence_gap");
    assert_eq!(notes(&harness), 1);
    assert_eq!(note(&harness, "2", "second").status(), "done");
    assert_eq!(note(&harness, "3", "third").status(), "done");
    assert_eq!(notes(&harness), 3);
}

#[test]
fn a_number_waits_until_the_one_before_is_decided() {
    let harness = with_limits("notes", "request-deadline = \"2s\"\nidle = \"1s\"");
    let provider = harness.provider();
    let lists_down = Settings { lists_down: true, ..Settings::default() };
    provider.settings(&lists_down).unwrap();
    let mode = Mode::CompleteThenHang;
    provider.mode(mode, "POST", "/v1/notes", Some(1)).unwrap();
    let lost = note(&harness, "1", "first");
    assert_eq!(lost.status(), "pending", "{lost:#?}");
    is_refused(&note(&harness, "2", "second"), "sequence_gap");
    assert_eq!(notes(&harness), 1);
    provider.settings(&Settings::default()).unwrap();
    assert_eq!(note(&harness, "1", "first again").status(), "done");
    assert_eq!(note(&harness, "2", "second").status(), "done");
    assert_eq!(notes(&harness), 2);
}

#[test]
fn each_trigger_counts_by_itself() {
    let harness = Harness::new("notes").unwrap();
    for trigger in ["trigger=ticket-1", "trigger=ticket-2"] {
        let heard = note_by(&harness, &[trigger, "sequence=1"], "first");
        assert_eq!(heard.status(), "done", "{trigger}: {heard:#?}");
    }
    // The run is not the scope: the same note asked for by another run is the same note.
    let other_run = ["trigger=ticket-1", "sequence=1", "run=another"];
    assert_eq!(note_by(&harness, &other_run, "first").status(), "already_done");
    assert_eq!(notes(&harness), 2);
    let gap = ["trigger=ticket-3", "sequence=2"];
    is_refused(&note_by(&harness, &gap, "second"), "sequence_gap");
    assert_eq!(notes(&harness), 2);
}

#[test]
fn a_missing_or_odd_number_sends_nothing() {
    let harness = Harness::new("notes").unwrap();
    is_refused(&note_by(&harness, &["trigger=ticket-1"], "no number"), "context_missing");
    is_refused(&note_by(&harness, &["sequence=1"], "no trigger"), "context_missing");
    for odd in ["0", "-1", "1.0", "one", "01", "+1", " 1", "18446744073709551616"] {
        let heard = note(&harness, odd, "odd");
        assert_eq!(heard.status(), "refused", "{odd:?}: {heard:#?}");
    }
    assert_eq!(notes(&harness), 0);
}

#[test]
fn reads_need_no_ledger() {
    let harness = Harness::new("orders").unwrap();
    let nowhere = format!("redb:{}", harness.folder().join("none/ledger.redb").display());
    let arguments = json!({ "order_id": "O-7" });
    for _ in 0..2 {
        let mut command = harness.call("show-order", &arguments, &[]);
        command.args(["--ledger", &nowhere]);
        let heard = hear(&mut command);
        assert_eq!(heard.status(), "done", "{heard:#?}");
        assert_eq!(heard.json["effects"], json!([]), "{heard:#?}");
        assert_eq!(heard.json["replayed"], false, "{heard:#?}");
        let result = &heard.json["result"];
        assert_eq!(result["customer"]["id"], "C-7", "{heard:#?}");
        assert_eq!(result["total"], 6500, "{heard:#?}");
        assert_eq!(result["status"], "shipped", "{heard:#?}");
        assert_eq!(result["note"], Value::Null, "{heard:#?}");
    }
    assert!(!harness.folder().join("none").exists(), "a read made a ledger");
    let counts = harness.provider().counts().unwrap();
    assert!(counts.values().all(|count| *count == 0), "{counts:?}");
    // Each read asks the shop again: nothing of it is stored as an answer.
    assert_eq!(harness.provider().log().unwrap().len(), 4);
}

#[test]
fn an_effect_needs_a_ledger_that_was_made() {
    let harness = Harness::new("refunds").unwrap();
    let nowhere = harness.folder().join("none.redb");
    let arguments = json!({ "return_id": "R-1", "reason": "x" });
    let mut command = harness.call("issue-refund", &arguments, &[]);
    command.args(["--ledger", &format!("redb:{}", nowhere.display())]);
    let heard = hear(&mut command);
    is_refused(&heard, "ledger_unavailable");
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
    assert!(!nowhere.exists(), "a ledger came into being by a call");
}

#[test]
fn a_read_that_finds_nothing_is_the_tools_failure() {
    let harness = Harness::new("orders").unwrap();
    let heard = call(&harness, "show-order", &json!({ "order_id": "unknown" }), &[]);
    is_refused(&heard, "tool_failed");
    let error = heard.json["result"]["error"].as_str().unwrap();
    assert!(error.contains("does not know"), "{heard:#?}");
}
