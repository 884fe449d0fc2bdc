//! `ensure = true`: what exists at the provider already is found before anything is sent.

use std::time::Duration;

use oncegate_ledger::StateTag;
use oncegate_tests::harness::{Harness, Options, Running};
use oncegate_tests::provider::domains::Settings;
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, refund, refunds};
use crate::attacks::changed;
use crate::book;

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
const LONG: Duration = Duration::from_secs(60);

fn ensuring() -> (Harness, TempDir) {
    let (guest, folder) = changed(&[("reference = \"form:metadata[ref]\"\n", "ensure = true\n")]);
    (Harness::with(guest, Options::default()).unwrap(), folder)
}

/// Somebody else refunds a return, so much of it.
fn refund_elsewhere(harness: &Harness, n: u32, amount: u32) {
    let body = format!("charge=ch_{n}&amount={amount}&metadata%5Breturn%5D=R-{n}");
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let (status, _) = harness.provider().send("POST", REFUNDS, &headers, body.as_bytes()).unwrap();
    assert_eq!(status, 200);
}

fn posts(harness: &Harness) -> usize {
    let log = harness.provider().log().unwrap();
    log.iter().filter(|one| one.method == "POST" && one.path == REFUNDS).count()
}

#[test]
fn what_exists_is_found_and_not_made() {
    let (harness, _folder) = ensuring();
    refund_elsewhere(&harness, 1, 50_000);
    for reason in ["first", "second", "third"] {
        call(&harness, TOOL, &refund("R-1", reason), &[]).is_replay_of("re_000001");
    }
    assert_eq!((refunds(&harness), posts(&harness)), (1, 1));
    // It is a row like any other: it compares, and every command reads it.
    let less = json!({ "return_id": "R-1", "reason": "x", "amount": 700 });
    let other = call(&harness, TOOL, &less, &[]);
    assert_eq!(other.json["code"], "idempotency_key_reused", "{other:#?}");
    let rows = book::rows(&harness);
    assert!(rows.len() == 1 && rows[0].state == StateTag::Done && rows[0].answers.is_empty(), "{rows:?}");
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    assert!(list.stdout.contains("re_000001"), "{list:?}");
    let key = harness.run(&["ledger", "list"]).unwrap();
    assert_eq!(key.code, Some(0), "{key:?}");
    let records = book::records(&harness);
    let effect = records.iter().find(|record| record.stream.kind == oncegate_ledger::StreamKind::Effect).unwrap();
    let digits: String = effect.stream.id[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    for command in [
        &["ledger", "show", &digits][..],
        &["ledger", "show", &digits, "--json"],
        &["ledger", "verify"],
        &["ledger", "reconcile"],
        &["ledger", "reconcile", "--confirm"],
        &["doctor"],
    ] {
        let run = harness.run(command).unwrap();
        assert_eq!(run.code, Some(0), "{command:?}: {run:?}");
    }
    assert_eq!((refunds(&harness), posts(&harness)), (1, 1));
}

#[test]
fn what_does_not_exist_is_made_once() {
    let (harness, _folder) = ensuring();
    let first = call(&harness, TOOL, &refund("R-2", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    call(&harness, TOOL, &refund("R-2", "second"), &[]).is_replay_of("re_000001");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn another_amount_or_more_than_one_freezes_the_key() {
    let (harness, _folder) = ensuring();
    refund_elsewhere(&harness, 3, 100);
    refund_elsewhere(&harness, 4, 50_000);
    refund_elsewhere(&harness, 4, 50_000);
    for id in ["R-3", "R-4"] {
        for _ in 0..2 {
            let heard = call(&harness, TOOL, &refund(id, "x"), &[]);
            assert_eq!(heard.status(), "pending", "{id}: {heard:#?}");
            assert_eq!(heard.json["detail"], "frozen", "{id}: {heard:#?}");
        }
    }
    assert_eq!((refunds(&harness), posts(&harness)), (3, 3));
    assert_eq!(harness.run(&["ledger", "verify"]).unwrap().code, Some(0));
}

#[test]
fn what_cannot_be_told_is_not_guessed() {
    let (harness, _folder) = ensuring();
    let provider = harness.provider();
    refund_elsewhere(&harness, 5, 50_000);
    provider.settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
    for id in ["R-5", "R-6"] {
        let heard = call(&harness, TOOL, &refund(id, "while lists are down"), &[]);
        assert_eq!(heard.status(), "pending", "{id}: {heard:#?}");
        assert_eq!(heard.json["detail"], "unknown", "{id}: {heard:#?}");
    }
    assert_eq!((refunds(&harness), posts(&harness)), (1, 1));
    assert_eq!(book::rows(&harness).len(), 0);
    provider.settings(&Settings::default()).unwrap();
    call(&harness, TOOL, &refund("R-5", "again"), &[]).is_replay_of("re_000001");
    assert_eq!(call(&harness, TOOL, &refund("R-6", "again"), &[]).status(), "done");
    assert_eq!(refunds(&harness), 2);
}

/// Whoever looks first: found by all, or made by one and heard by the rest.
#[test]
fn callers_at_once_find_one_or_make_one() {
    let (harness, _folder) = ensuring();
    refund_elsewhere(&harness, 1, 50_000);
    for (id, receipt) in [("R-1", "re_000001"), ("R-2", "re_000002")] {
        let start = |n: usize| {
            let arguments = refund(id, &format!("caller {n}"));
            Running::start(&mut harness.call(TOOL, &arguments, &[])).unwrap()
        };
        let running: Vec<Running> = (0..8).map(start).collect();
        for one in running {
            let heard = Heard::of(&one.wait(LONG).unwrap());
            assert!(heard.is_success() || heard.status() == "pending", "{id}: {heard:#?}");
        }
        call(&harness, TOOL, &refund(id, "afterwards"), &[]).is_replay_of(receipt);
    }
    assert_eq!((refunds(&harness), posts(&harness)), (2, 2));
}
