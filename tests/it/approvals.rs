//! Approvals: what a person approved is what is sent, byte for byte, however the next call is worded;
//! anything else waits anew.

use std::thread;

use oncegate_contract::Request;
use oncegate_ledger::{Effects, EffectsError, Event, StateTag};
use oncegate_tests::harness::{Guest, Harness, Options};
use oncegate_tests::provider::Logged;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, refund};
use crate::attacks::change_policy;
use crate::many::now;

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";

fn with(rule: &str) -> Harness {
    let options = Options { policy: format!("\n[[approve]]\n{rule}\n"), ..Options::default() };
    Harness::with(Guest::example("refunds").unwrap(), options).unwrap()
}

/// Every refund needs an approval.
fn always() -> Harness {
    with("operation = \"create-refund\"")
}

fn of_amount(amount: i64, reason: &str) -> Value {
    json!({ "return_id": "R-1", "amount": amount, "reason": reason })
}

/// What was sent to make something happen.
fn sent(harness: &Harness, path: &str) -> Vec<Logged> {
    let log = harness.provider().log().unwrap().into_iter();
    log.filter(|one| one.method == "POST" && one.path == path).collect()
}

fn amounts(harness: &Harness) -> Vec<i64> {
    harness.provider().effects().unwrap().iter().filter_map(|effect| effect.object["amount"].as_i64()).collect()
}

#[track_caller]
fn waits(heard: &Heard) {
    assert_eq!((heard.status(), heard.json["detail"].as_str()), ("pending", Some("awaiting_approval")), "{heard:#?}");
    assert_eq!(heard.json["next_action"], "ask_person", "{heard:#?}");
}

/// The row that waits: its key, version, and the request that a person sees.
struct Waiting {
    key: [u8; 32],
    version: u64,
    digest: [u8; 32],
    request: Request,
}

async fn effects(harness: &Harness) -> Effects {
    let url = format!("redb:{}", harness.home().join("ledger.redb").display());
    Effects::new(oncegate_ledger::open(&url).await.unwrap())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

fn waiting(harness: &Harness) -> Waiting {
    runtime().block_on(async {
        let effects = effects(harness).await;
        let ids = effects.ledger.list(StateTag::AwaitingApproval, None, 10).await.unwrap();
        assert_eq!(ids.len(), 1, "{ids:?}");
        let row = effects.get(ids[0].id).await.unwrap().unwrap();
        let proposal = row.proposal.unwrap();
        let request = effects.ledger.load(&proposal.request).await.unwrap();
        Waiting {
            key: ids[0].id,
            version: row.version,
            digest: proposal.request_digest,
            request: serde_json::from_slice(&request).unwrap(),
        }
    })
}

fn approved(waiting: &Waiting, actor: &str) -> Event {
    let (actor, reason) = (actor.to_owned(), "a test".to_owned());
    Event::Approved { actor, reason, decision: None, request_digest: waiting.digest, at: now() }
}

fn append(harness: &Harness, waiting: &Waiting, event: Event) -> Result<(), EffectsError> {
    runtime().block_on(async {
        effects(harness).await.append(waiting.key, waiting.version, event, Vec::new()).await.map(|_| ())
    })
}

/// A person approves what waits now.
fn approve(harness: &Harness, actor: &str) -> Waiting {
    let waiting = waiting(harness);
    append(harness, &waiting, approved(&waiting, actor)).unwrap();
    waiting
}

#[test]
fn what_was_approved_is_what_is_sent_however_the_next_call_is_worded() {
    let harness = always();
    waits(&call(&harness, TOOL, &refund("R-1", "as it was shown"), &[]));
    waits(&call(&harness, TOOL, &refund("R-1", "said otherwise"), &[]));
    assert_eq!(sent(&harness, REFUNDS).len(), 0);
    let seen = approve(&harness, "ada");
    let heard = call(&harness, TOOL, &refund("R-1", "and otherwise again"), &[]);
    assert_eq!((heard.status(), &heard.json["reworded"]), ("done", &json!(true)), "{heard:#?}");
    let sent = sent(&harness, REFUNDS);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].body.as_bytes(), seen.request.body, "{}", sent[0].body);
    assert!(seen.request.url.ends_with(&sent[0].path), "{}", seen.request.url);
    assert!(sent[0].body.contains("shown"), "{}", sent[0].body);
    // Nobody is asked for a stored answer.
    call(&harness, TOOL, &refund("R-1", "once more"), &[]).is_replay_of(heard.receipts()[0]);
    assert_eq!(amounts(&harness).len(), 1);
}

#[test]
fn only_what_is_above_the_bound_waits() {
    let harness = with("operation = \"create-refund\"\nwhen = { field = \"amount\", above = 40000 }");
    let below = json!({ "return_id": "R-7", "amount": 40_000, "reason": "small" });
    assert_eq!(call(&harness, TOOL, &below, &[]).status(), "done");
    waits(&call(&harness, TOOL, &of_amount(40_001, "large"), &[]));
    assert_eq!(amounts(&harness), [40_000]);
}

#[test]
fn another_amount_waits_anew() {
    let harness = always();
    waits(&call(&harness, TOOL, &of_amount(300, "first"), &[]));
    let first = approve(&harness, "ada");
    // Approved is not this one.
    waits(&call(&harness, TOOL, &of_amount(400, "more"), &[]));
    let second = waiting(&harness);
    assert_ne!(second.digest, first.digest);
    // What was approved before is gone: it waits anew as well.
    waits(&call(&harness, TOOL, &of_amount(300, "first again"), &[]));
    waits(&call(&harness, TOOL, &of_amount(400, "more"), &[]));
    assert_eq!(sent(&harness, REFUNDS).len(), 0);
    approve(&harness, "ada");
    assert_eq!(call(&harness, TOOL, &of_amount(400, "other words"), &[]).status(), "done");
    assert_eq!(amounts(&harness), [400]);
}

#[test]
fn another_address_waits_anew() {
    let harness = always();
    waits(&call(&harness, TOOL, &refund("R-1", "first"), &[]));
    approve(&harness, "ada");
    let url = harness.provider_url();
    change_policy(
        &harness,
        &format!("url = \"{url}\"\naccount = \"pay-test\""),
        &format!("url = \"{url}/moved\"\naccount = \"pay-test\""),
    );
    waits(&call(&harness, TOOL, &refund("R-1", "first"), &[]));
    assert!(waiting(&harness).request.url.contains("/moved/"));
    assert_eq!(harness.provider().log().unwrap().iter().filter(|one| one.method == "POST").count(), 0);
}

#[test]
fn an_approval_by_somebody_else_does_not_count() {
    let harness = with("operation = \"create-refund\"\nby = [\"alice\", \"bob\"]");
    waits(&call(&harness, TOOL, &refund("R-1", "first"), &[]));
    approve(&harness, "mallory");
    let heard = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    waits(&heard);
    assert!(heard.json["message"].as_str().unwrap().contains("counts"), "{heard:#?}");
    assert_eq!(sent(&harness, REFUNDS).len(), 0);
    approve(&harness, "bob");
    // Who comes later takes nothing away.
    approve(&harness, "mallory");
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).status(), "done");
    assert_eq!(amounts(&harness).len(), 1);
}

#[test]
fn an_answer_through_a_client_counts_only_where_the_policy_says() {
    const CLIENT: &str = "elicitation:stdio tenant acme client \"desktop\"";
    let harness = always();
    waits(&call(&harness, TOOL, &refund("R-1", "first"), &[]));
    approve(&harness, CLIENT);
    let with = |harness: &Harness, from: &str, to: &str| {
        let heard = call(harness, TOOL, &refund("R-1", "first"), &[]);
        waits(&heard);
        assert!(heard.json["message"].as_str().unwrap().contains("counts"), "{heard:#?}");
        change_policy(
            harness,
            &format!("operation = \"create-refund\"{from}"),
            &format!("operation = \"create-refund\"{to}"),
        );
    };
    // Without `by` anybody may approve; a client's word is nobody's.
    let (alice, desk, stdio) = (
        "\nby = [\"alice\"]",
        "\nelicitation-from = [\"token:desk\"]",
        "\nelicitation-from = [\"token:desk\", \"stdio\"]",
    );
    with(&harness, "", alice);
    with(&harness, alice, desk);
    with(&harness, desk, stdio);
    assert_eq!(sent(&harness, REFUNDS).len(), 0);
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).status(), "done");
    assert_eq!(amounts(&harness).len(), 1);
    // Nobody at the host is called so.
    let run = harness
        .run(&["ledger", "approve", "refund R-1", "--reason", "r", "--expect-version", "1", "--actor", CLIENT])
        .unwrap();
    assert_eq!(run.code, Some(2), "{run:?}");
}

#[test]
fn denied_is_denied_for_ever() {
    let harness = always();
    waits(&call(&harness, TOOL, &refund("R-1", "please"), &[]));
    let waiting = waiting(&harness);
    let denied = Event::Denied { actor: "ada".into(), reason: "no receipt".into(), decision: None, at: now() };
    append(&harness, &waiting, denied).unwrap();
    for amount in [50_000, 1] {
        let heard = call(&harness, TOOL, &of_amount(amount, "please, please"), &[]);
        assert_eq!((heard.status(), heard.json["code"].as_str()), ("refused", Some("revoked")), "{heard:#?}");
    }
    // An approval of what was refused comes too late.
    let late = Waiting { version: waiting.version + 1, ..waiting };
    assert!(matches!(append(&harness, &late, approved(&late, "ada")), Err(EffectsError::Illegal(_))));
    // Nor does a policy that asks nobody change it.
    change_policy(&harness, "[[approve]]\noperation = \"create-refund\"", "");
    assert_eq!(call(&harness, TOOL, &refund("R-1", "now?"), &[]).status(), "refused");
    assert_eq!(sent(&harness, REFUNDS).len(), 0);
}

#[test]
fn an_approval_that_races_with_an_amendment_is_for_what_was_seen() {
    let harness = always();
    for n in 0..6 {
        let of = |amount: i64| json!({ "return_id": format!("R-{n}"), "amount": amount, "reason": "raced" });
        waits(&call(&harness, TOOL, &of(300), &[]));
        let seen = waiting(&harness);
        let won = thread::scope(|scope| {
            let amending = scope.spawn(|| call(&harness, TOOL, &of(400), &[]));
            let approving = scope.spawn(|| append(&harness, &seen, approved(&seen, "ada")));
            waits(&amending.join().unwrap());
            approving.join().unwrap()
        });
        assert!(matches!(&won, Ok(()) | Err(EffectsError::Illegal(_) | EffectsError::Ledger(_))), "{won:?}");
        // Whoever was first, the larger one was never approved.
        waits(&call(&harness, TOOL, &of(400), &[]));
        assert_eq!(amounts(&harness).len(), n);
        approve(&harness, "ada");
        assert_eq!(call(&harness, TOOL, &of(400), &[]).status(), "done");
    }
    assert_eq!(amounts(&harness), [400; 6]);
}

#[test]
fn after_a_refusal_by_the_provider_it_is_approved_anew() {
    let harness = always();
    harness.provider().mode(Mode::Reject402, "POST", REFUNDS, Some(1)).unwrap();
    waits(&call(&harness, TOOL, &refund("R-1", "first"), &[]));
    approve(&harness, "ada");
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).status(), "failed");
    waits(&call(&harness, TOOL, &refund("R-1", "second"), &[]));
    assert_eq!(sent(&harness, REFUNDS).len(), 1);
    let seen = approve(&harness, "ada");
    assert_eq!(call(&harness, TOOL, &refund("R-1", "third"), &[]).status(), "done");
    assert_eq!(sent(&harness, REFUNDS)[1].body.as_bytes(), seen.request.body);
    assert_eq!(amounts(&harness).len(), 1);
}

#[test]
fn a_request_is_sent_again_only_while_its_approval_counts() {
    let rule = "\n[[approve]]\noperation = \"send-email\"\nby = [\"alice\"]\n";
    let options = Options { policy: rule.to_owned(), ..Options::default() };
    let harness = Harness::with(Guest::example("campaign").unwrap(), options).unwrap();
    let send = |words: &str| {
        let arguments = json!({ "subject": words, "body": words, "recipients": ["reader@example.com"] });
        call(&harness, "send-campaign", &arguments, &["trigger=spring"])
    };
    waits(&send("first"));
    approve(&harness, "alice");
    harness.provider().mode(Mode::Error503Before, "POST", "/v1/emails", Some(2)).unwrap();
    assert_eq!(send("second").json["detail"], "unknown");
    harness.provider().clear().unwrap();
    let before = sent(&harness, "/v1/emails").len();
    let policy = change_policy(&harness, "[\"alice\"]", "[\"bob\"]");
    assert_eq!(send("third").json["detail"], "unknown");
    assert_eq!(sent(&harness, "/v1/emails").len(), before);
    std::fs::write(harness.home().join("policy.toml"), policy).unwrap();
    assert!(send("fourth").is_success());
    let all = sent(&harness, "/v1/emails");
    assert!(all.iter().all(|one| one.body == all[0].body && one.body.contains("first")), "{all:#?}");
    assert_eq!(harness.provider().count("email").unwrap(), 1);
}
