//! `account-is`: the provider itself says which account this is, whatever URL or credential leads there.

use std::fs;

use oncegate_tests::harness::{Harness, Options};
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, refund, refunds};
use crate::attacks::{change_policy, changed};

const TOOL: &str = "issue-refund";
const WHOAMI: &str = "\n[operation.whoami]\neffect = \"none\"\nrequest = \"GET pay:/customers/C-1\"\nfields = []\n\
                      found-when = { status = 200 }\n";

/// A tool whose provider can say who it is; the policy has it asked if `proven`.
fn who(account: &str, proven: bool) -> (Harness, TempDir) {
    let (guest, folder) =
        changed(&[("# Only the host runs this one", &format!("{WHOAMI}\n# Only the host runs this one"))]);
    let harness = Harness::with(guest, Options::default()).unwrap();
    names(&harness, account);
    if proven {
        prove(&harness);
    }
    (harness, folder)
}

/// A provider whose identifiers are others than those of the first one.
fn elsewhere(account: &str) -> (Harness, TempDir) {
    let (elsewhere, folder) = who(account, false);
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    for _ in 0..10 {
        elsewhere.provider().send("POST", "/v1/refunds", &headers, b"charge=ch_9").unwrap();
    }
    (elsewhere, folder)
}

fn prove(harness: &Harness) {
    let asked = "account = \"pay-test\"\naccount-is = { operation = \"whoami\", at = \"/account\" }";
    change_policy(harness, "account = \"pay-test\"", asked);
}

fn names(harness: &Harness, account: &str) {
    harness.provider().seed(&json!({ "customers": [{ "id": "C-1", "account": account }] })).unwrap();
}

/// The policy leads to another server for payments.
fn move_to(harness: &Harness, elsewhere: &Harness) {
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let pay = policy.find("[endpoint.pay]").unwrap();
    let moved = policy[pay..].replacen(&harness.provider_url(), &elsewhere.provider_url(), 1);
    fs::write(&file, format!("{}{moved}", &policy[..pay])).unwrap();
}

fn ask(harness: &Harness, id: &str) -> Heard {
    call(harness, TOOL, &refund(id, "x"), &[])
}

#[track_caller]
fn is_refused(heard: &Heard) {
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(heard.json["code"], "effect_not_permitted", "{heard:#?}");
}

#[test]
fn the_same_account_may_move() {
    let (harness, _folder) = who("acct_eu", true);
    let first = ask(&harness, "R-1");
    assert_eq!(first.status(), "done", "{first:#?}");
    let (elsewhere, _other) = elsewhere("acct_eu");
    move_to(&harness, &elsewhere);
    ask(&harness, "R-1").is_replay_of(first.receipts()[0]);
    assert_eq!(ask(&harness, "R-2").status(), "done");
    assert_eq!((refunds(&harness), refunds(&elsewhere)), (1, 11));
}

#[test]
fn another_account_is_refused_whatever_leads_there() {
    let (harness, _folder) = who("acct_eu", true);
    let first = ask(&harness, "R-1");
    assert_eq!(first.status(), "done", "{first:#?}");
    // The same URL, label and credential, and another account behind them.
    names(&harness, "acct_us");
    is_refused(&ask(&harness, "R-2"));
    ask(&harness, "R-1").is_replay_of(first.receipts()[0]);
    let (elsewhere, _other) = elsewhere("acct_us");
    move_to(&harness, &elsewhere);
    is_refused(&ask(&harness, "R-2"));
    assert_eq!((refunds(&harness), refunds(&elsewhere)), (1, 10));
}

#[test]
fn who_does_not_answer_is_sent_nothing() {
    let (harness, _folder) = who("acct_eu", true);
    assert_eq!(ask(&harness, "R-1").status(), "done");
    for silent in [json!({ "id": "C-1" }), json!({ "id": "C-1", "account": "" }), json!({ "id": "C-1", "account": {} })]
    {
        harness.provider().seed(&json!({ "customers": [silent] })).unwrap();
        let heard = ask(&harness, "R-2");
        assert!(!heard.is_success(), "{silent}: {heard:#?}");
        assert_eq!(refunds(&harness), 1, "{silent}");
    }
    names(&harness, "acct_eu");
    assert_eq!(ask(&harness, "R-2").status(), "done");
    assert_eq!(refunds(&harness), 2);
}

/// A ledger in use is bound to what the provider says once the policy has it asked, and not before.
#[test]
fn a_proof_is_taken_up_and_not_given_up() {
    let (harness, _folder) = who("acct_eu", false);
    assert_eq!(ask(&harness, "R-1").status(), "done");
    let (elsewhere, _other) = elsewhere("acct_eu");
    let file = harness.home().join("policy.toml");
    let at_home = fs::read_to_string(&file).unwrap();
    move_to(&harness, &elsewhere);
    is_refused(&ask(&harness, "R-2"));
    prove(&harness);
    // It was not proven at the first URL yet.
    is_refused(&ask(&harness, "R-2"));
    fs::write(&file, &at_home).unwrap();
    prove(&harness);
    assert_eq!(ask(&harness, "R-2").status(), "done");
    move_to(&harness, &elsewhere);
    assert_eq!(ask(&harness, "R-3").status(), "done");
    assert_eq!((refunds(&harness), refunds(&elsewhere)), (2, 11));
    // Without the question the last URL that was proven is the one that counts.
    let proven = fs::read_to_string(&file).unwrap();
    fs::write(&file, proven.replace("account-is = { operation = \"whoami\", at = \"/account\" }\n", "")).unwrap();
    assert_eq!(ask(&harness, "R-4").status(), "done");
    fs::write(&file, &at_home).unwrap();
    is_refused(&ask(&harness, "R-5"));
    assert_eq!((refunds(&harness), refunds(&elsewhere)), (2, 12));
}
