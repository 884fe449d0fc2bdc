//! Receipts belong to one effect: what is another one's is nobody's proof.

use std::time::Duration;

use oncegate_ledger::StateTag;
use oncegate_tests::harness::{Guest, Harness, Options, Running};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Heard, call, packed, refund, refunds};
use crate::attacks::{changed, digest};
use crate::book;

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

/// A provider whose identifiers are those of the charge: two refunds of one charge have one.
fn one_identifier() -> (Harness, TempDir) {
    let (guest, folder) = changed(&[
        ("receipt   = \"/id\"", "receipt   = \"/charge\""),
        ("receipt      = \"/id\"", "receipt      = \"/charge\""),
        ("absent-after = \"90s\"", "absent-after = \"200ms\""),
    ]);
    let harness = Harness::with(guest, Options::default()).unwrap();
    let returns: Vec<Value> = (901..=906)
        .map(|n| json!({ "id": format!("R-{n}"), "charge": "ch_9", "amount": 100, "status": "received" }))
        .collect();
    harness.provider().seed(&json!({ "returns": returns })).unwrap();
    (harness, folder)
}

#[track_caller]
fn is_open(heard: &Heard) {
    assert_eq!(heard.status(), "pending", "{heard:#?}");
    assert!(heard.receipts().is_empty(), "{heard:#?}");
}

#[test]
fn an_answer_with_another_effects_receipt_is_no_success() {
    let (harness, _folder) = one_identifier();
    let first = call(&harness, TOOL, &refund("R-901", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    assert_eq!(first.receipts(), ["ch_9"], "{first:#?}");
    for _ in 0..3 {
        is_open(&call(&harness, TOOL, &refund("R-902", "second"), &[]));
    }
    call(&harness, TOOL, &refund("R-901", "again"), &[]).is_replay_of("ch_9");
    let states: Vec<StateTag> = book::rows(&harness).iter().map(|row| row.state).collect();
    assert!(states.contains(&StateTag::Done) && states.contains(&StateTag::Unknown), "{states:?}");
    // Whatever it answered, the provider made both, and each once.
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn two_effects_never_take_one_receipt_at_once() {
    let (harness, _folder) = one_identifier();
    // All are sent before one is answered.
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", None).unwrap();
    let start = |n: usize| {
        let arguments = refund(&format!("R-{n}"), "at once");
        Running::start(&mut harness.call(TOOL, &arguments, &[])).unwrap()
    };
    let running: Vec<Running> = (901..=906).map(start).collect();
    let heard: Vec<Heard> = running.into_iter().map(|one| Heard::of(&one.wait(LONG).unwrap())).collect();
    harness.provider().clear().unwrap();
    let rows = book::rows(&harness);
    let owners = rows.iter().filter(|row| row.receipt.as_deref() == Some("ch_9")).count();
    assert_eq!(owners, 1, "{rows:?}\n{heard:#?}");
    let told = heard.iter().filter(|heard| !heard.receipts().is_empty()).count();
    assert!(told <= 1, "{heard:#?}");
    assert_eq!(refunds(&harness), 6);
}

/// A later version of the tool under another name, which refunds at another path of the same account.
fn another_kind(harness: &Harness, folder: &TempDir) -> Guest {
    let contract = std::fs::read_to_string(folder.path().join("contract.toml")).unwrap();
    let contract = contract.replace("acme-refunds", "acme-credits");
    let contract = contract.replace("POST pay:/v1/refunds", "POST pay:/v1/refunds?kind=credit");
    let inside = folder.path().join("other");
    std::fs::create_dir(&inside).unwrap();
    let guest = packed(&inside, &contract);
    let file = harness.home().join("policy.toml");
    let policy = std::fs::read_to_string(&file).unwrap();
    let more = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n",
        digest(&guest)
    );
    std::fs::write(&file, format!("{policy}{more}")).unwrap();
    guest
}

fn call_by(harness: &Harness, guest: &Guest, id: &str) -> Heard {
    let mut command = harness.command();
    command.arg("call").arg(&guest.component).args([TOOL, "--json", "--context", "tenant=acme"]);
    command.args(["--args", &refund(id, "by another kind").to_string()]);
    crate::agent::hear(&mut command)
}

/// An identifier may be unique per kind only: an answer with it is a success, a list that shows it is
/// neither a receipt nor an absence.
#[test]
fn an_identifier_of_another_kind_is_a_success_by_answer_and_nothing_by_list() {
    let (harness, folder) = one_identifier();
    assert_eq!(call(&harness, TOOL, &refund("R-901", "first"), &[]).receipts(), ["ch_9"]);
    let other = another_kind(&harness, &folder);
    let credit = call_by(&harness, &other, "R-902");
    assert_eq!(credit.status(), "done", "{credit:#?}");
    assert_eq!(credit.receipts(), ["ch_9"], "{credit:#?}");
    assert_eq!(refunds(&harness), 2);

    let (harness, folder) = one_identifier();
    assert_eq!(call(&harness, TOOL, &refund("R-901", "first"), &[]).receipts(), ["ch_9"]);
    let other = another_kind(&harness, &folder);
    harness.provider().mode(Mode::CompleteThenReset, "POST", "/v1/refunds", Some(1)).unwrap();
    for _ in 0..3 {
        is_open(&call_by(&harness, &other, "R-902"));
        std::thread::sleep(Duration::from_millis(300));
    }
    let run = harness.run(&["ledger", "reconcile"]).unwrap();
    assert_eq!(run.code, Some(4), "{run:?}");
    is_open(&call_by(&harness, &other, "R-902"));
    assert_eq!(refunds(&harness), 2, "an absence was concluded from what was found");
}
