//! What a plan lets through: its targets with its values, and nothing else.

use std::fs;

use oncegate_tests::harness::Harness;
use oncegate_tests::provider::domains::Settings;
use serde_json::{Value, json};

use super::{Standing, drive, freeze, frozen, list, payouts, refunds};
use crate::agent::{Heard, call, refund};

#[track_caller]
fn mismatch(heard: &Heard, part: &str) {
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(heard.json["code"], "plan_mismatch", "{heard:#?}");
    assert!(heard.json["message"].as_str().unwrap().contains(part), "{heard:#?}");
}

fn may() -> Harness {
    let harness = payouts();
    let file = list(&harness, "due.csv", "return_id,plan.amount\nR-1,100\nR-2,200\n");
    frozen(&freeze(&harness, "may", "pay", &["--targets", &file]));
    assert_eq!(refunds(&harness), 0);
    harness
}

fn pay(return_id: &str) -> Value {
    json!({ "return_id": return_id })
}

#[test]
fn a_field_from_the_plan_has_the_value_of_the_target() {
    let harness = may();
    let heard = call(&harness, "pay", &json!({ "return_id": "R-2", "remark": null }), &["plan=may"]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    let effects = harness.provider().effects().unwrap();
    assert_eq!((effects.len(), &effects[0].object["amount"]), (1, &json!(200)), "{effects:?}");
    call(&harness, "pay", &pay("R-2"), &["plan=may"]).is_replay_of(&effects[0].id);
    // Without the plan nobody says how much.
    let heard = call(&harness, "pay", &pay("R-1"), &[]);
    assert_eq!(heard.json["code"], "context_missing", "{heard:#?}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_target_outside_the_plan_is_not_sent() {
    let harness = may();
    mismatch(&call(&harness, "pay", &pay("R-9"), &["plan=may"]), "no target");
    mismatch(&call(&harness, "pay", &json!({ "return_id": "R-1", "remark": "x" }), &["plan=may"]), "no target");
    mismatch(&call(&harness, "pay", &pay("R-1"), &["plan=june"]), "no such plan");
    assert_eq!(refunds(&harness), 0);
    Standing::of(&harness, "may", &[]).is(&[("approved", 2)], 4);
}

#[test]
fn other_values_than_the_frozen_ones_are_not_sent() {
    let harness = Harness::new("refunds").unwrap();
    let file = list(&harness, "due.csv", "return_id,amount,reason\nR-1,100,broken\nR-2,,broken\n");
    frozen(&freeze(&harness, "may", "issue-refund", &["--targets", &file]));
    let with = |id: &str, amount: i64| json!({ "return_id": id, "amount": amount, "reason": "other words" });
    mismatch(&call(&harness, "issue-refund", &with("R-1", 101), &["plan=may"]), "amount");
    mismatch(&call(&harness, "issue-refund", &refund("R-1", "all of it"), &["plan=may"]), "amount");
    mismatch(&call(&harness, "issue-refund", &with("R-3", 1), &["plan=may"]), "not part of the plan");
    assert_eq!(refunds(&harness), 0);
    let heard = call(&harness, "issue-refund", &with("R-1", 100), &["plan=may"]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(harness.provider().effects().unwrap()[0].object["amount"], 100);
    // A stored answer needs no plan, and no plan forbids it.
    let receipt = heard.receipts()[0].to_owned();
    call(&harness, "issue-refund", &with("R-1", 100), &["plan=june"]).is_replay_of(&receipt);
    // The shop changes its mind after the freeze: what is approved is not what would be sent.
    harness
        .provider()
        .seed(&json!({ "returns": [{ "id": "R-2", "charge": "ch_2", "amount": 5, "currency": "usd", "status": "received" }] }))
        .unwrap();
    let run = drive(&harness, "may", &[]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stdout.contains("refused\trefund R-2"), "{run:?}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_policy_that_requires_a_plan_sends_nothing_without_one() {
    let harness = Harness::new("refunds").unwrap();
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let strict = policy.replacen("tenants = ", "requires = [\"plan\"]\ntenants = ", 1);
    assert_ne!(strict, policy);
    fs::write(&file, strict).unwrap();
    let heard = call(&harness, "issue-refund", &refund("R-1", "broken"), &[]);
    assert_eq!(heard.json["code"], "context_missing", "{heard:#?}");
    assert_eq!(refunds(&harness), 0);
    let due = list(&harness, "due.json", &json!([refund("R-1", "broken")]).to_string());
    frozen(&freeze(&harness, "may", "issue-refund", &["--targets", &due]));
    mismatch(&call(&harness, "issue-refund", &refund("R-2", "broken"), &["plan=may"]), "not part of the plan");
    assert_eq!(call(&harness, "issue-refund", &refund("R-1", "worn"), &["plan=may"]).status(), "done");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_plan_of_another_tenant_is_no_plan() {
    let harness = Harness::new("refunds").unwrap();
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(&file, policy.replacen("tenants = [\"acme\"]", "tenants = [\"acme\", \"other\"]", 1)).unwrap();
    let due = list(&harness, "due.json", &json!([refund("R-1", "broken")]).to_string());
    frozen(&freeze(&harness, "may", "issue-refund", &["--targets", &due]));
    let mut command = harness.command();
    command.arg("call").arg(harness.component()).args(["issue-refund", "--json", "--context", "tenant=other"]);
    command.args(["--context", "plan=may", "--args", &refund("R-1", "broken").to_string()]);
    mismatch(&crate::agent::hear(&mut command), "not part of the plan");
    assert_eq!(refunds(&harness), 0);
}

#[test]
fn rows_that_were_there_before_are_told_and_stay() {
    let harness = Harness::new("refunds").unwrap();
    let heard = call(&harness, "issue-refund", &refund("R-1", "broken"), &[]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    let due = list(&harness, "due.json", &json!([refund("R-1", "x"), refund("R-2", "x")]).to_string());
    let said = frozen(&freeze(&harness, "may", "issue-refund", &["--targets", &due]));
    assert_eq!(said["existing"], json!([{ "label": "refund R-1", "state": "done" }]), "{said}");
    assert_eq!((&said["effects"], &said["written"]), (&json!(2), &json!(1)), "{said}");
    Standing::of(&harness, "may", &[]).is(&[("done", 1), ("approved", 1)], 4);
    let run = drive(&harness, "may", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(refunds(&harness), 2);
    call(&harness, "issue-refund", &refund("R-1", "y"), &[]).is_replay_of(heard.receipts()[0]);
}

/// The tool looks first and asks for nothing when the shop says that it was refunded.
#[test]
fn a_target_that_the_provider_calls_done_is_found_by_its_lookup() {
    let harness = may();
    let heard = call(&harness, "pay", &pay("R-1"), &["plan=may"]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    let follows = Settings { shop_follows: true, ..Settings::default() };
    harness.provider().settings(&follows).unwrap();
    let file = list(&harness, "again.csv", "return_id,plan.amount\nR-2,200\nR-1,100\n");
    let said = frozen(&freeze(&harness, "may", "pay", &["--targets", &file]));
    assert_eq!((&said["again"], &said["written"]), (&json!(true), &json!(0)), "{said}");
    let run = drive(&harness, "may", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(refunds(&harness), 2);
    Standing::of(&harness, "may", &[]).is(&[("done", 2)], 0);
}

#[test]
fn status_tells_what_was_sent_beside_the_plan_and_what_a_later_one_drops() {
    let harness = Harness::new("refunds").unwrap();
    let before = call(&harness, "issue-refund", &refund("R-8", "before the plan"), &[]);
    assert_eq!(before.status(), "done");
    let three = [refund("R-1", "x"), refund("R-2", "x"), refund("R-3", "x")];
    let may = list(&harness, "may.json", &json!(three).to_string());
    frozen(&freeze(&harness, "may", "issue-refund", &["--targets", &may]));
    assert_eq!(call(&harness, "issue-refund", &refund("R-9", "beside"), &[]).status(), "done");
    assert_eq!(call(&harness, "issue-refund", &refund("R-1", "a target, without the plan"), &[]).status(), "done");
    let june =
        list(&harness, "june.json", &json!([refund("R-1", "x"), refund("R-3", "x"), refund("R-4", "x")]).to_string());
    let said = frozen(&freeze(&harness, "june", "issue-refund", &["--targets", &june]));
    assert_eq!(said["existing"].as_array().unwrap().len(), 2, "{said}");
    let standing = Standing::of(&harness, "may", &["--against", "june"]);
    standing.is(&[("done", 1), ("approved", 2)], 4);
    assert_eq!(standing.labels("outside"), ["refund R-9"]);
    assert_eq!(standing.labels("dropped"), ["refund R-2"]);
    assert_eq!(refunds(&harness), 3);
    for plan in ["may", "june"] {
        assert_eq!(drive(&harness, plan, &[]).code, Some(0), "{plan}");
    }
    assert_eq!(refunds(&harness), 6);
    // For people the same, in columns.
    let page = harness.run(&["plan", "status", "may", "--against", "june", "--all"]).unwrap();
    assert_eq!(page.code, Some(0), "{page:?}");
    for part in ["plan may: issue-refund", "3 done", "2 sent outside the plan", "1 dropped by june", "refund R-9"] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
}

#[test]
fn every_effect_of_a_target_is_frozen() {
    let harness = payouts();
    let tell = |threads: &[&str]| json!({ "threads": threads, "text": "hello" });
    let file = list(&harness, "tell.json", &json!([tell(&["a", "b", "c"])]).to_string());
    let said = frozen(&freeze(&harness, "news", "tell", &["--targets", &file]));
    assert_eq!((&said["targets"], &said["effects"]), (&json!(1), &json!(3)), "{said}");
    let heard = call(&harness, "tell", &tell(&["a", "z"]), &["plan=news"]);
    assert_eq!(heard.json["code"], "plan_mismatch", "{heard:#?}");
    assert_eq!(harness.provider().count("note").unwrap(), 1, "a is in the plan, z is not");
    let run = drive(&harness, "news", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(harness.provider().count("note").unwrap(), 3);
}
