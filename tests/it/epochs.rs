//! An effect that is done again by decision: who may, and what all others go on hearing.

use std::time::Duration;

use oncegate_ledger::state::Effect;
use oncegate_ledger::{Effects, Event, StateTag, StreamId, StreamKind};
use oncegate_tests::harness::{Harness, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use tokio::runtime::Runtime;

use crate::agent::{Heard, call, refund, refunds, with_limits};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

fn ask(harness: &Harness, context: &[&str]) -> Heard {
    call(harness, TOOL, &refund("R-1", "again"), context)
}

/// Writes the decision into the ledger, as an operator's command does.
fn supersede(harness: &Harness, state: StateTag, for_whom: &str) {
    Runtime::new().unwrap().block_on(async {
        let path = harness.home().join("ledger.redb");
        let ledger = oncegate_ledger::open(&format!("redb:{}", path.display())).await.unwrap();
        let effects = Effects::new(ledger);
        let streams: Vec<StreamId> = effects.ledger.list(state, None, 10).await.unwrap();
        let effect = streams.iter().rfind(|stream| stream.kind == StreamKind::Effect).unwrap();
        let row: Effect = effects.get(effect.id).await.unwrap().unwrap();
        let event = Event::Superseded {
            actor: "ann".to_owned(),
            reason: "the customer was promised another one".to_owned(),
            epoch: row.epoch + 1,
            for_whom: for_whom.to_owned(),
            at: row.updated_at + 1,
            decision: None,
        };
        effects.append(effect.id, row.version, event, Vec::new()).await.unwrap();
    });
}

/// A plan of that one refund.
fn freeze(harness: &Harness, plan: &str) {
    let targets = harness.folder().join("targets.json");
    std::fs::write(&targets, serde_json::json!([refund("R-1", "planned")]).to_string()).unwrap();
    let component = harness.component().display().to_string();
    let list = targets.display().to_string();
    let by = ["--context", "tenant=acme", "--reason", "one more", "--actor", "ann"];
    let what = ["plan", "freeze", plan, &component, TOOL, "--targets", &list];
    let frozen = harness.run(&[&what[..], &by].concat()).unwrap();
    assert_eq!(frozen.code, Some(0), "{frozen:?}");
}

#[test]
fn a_later_epoch_is_for_whom_the_decision_names() {
    for (for_whom, named, others) in [
        ("run:2", "run=2", ["run=3", "plan=2", "permit=2"]),
        ("plan:spring", "plan=spring", ["run=spring", "plan=spring2", "plan=Spring"]),
    ] {
        let harness = Harness::new("refunds").unwrap();
        assert_eq!(ask(&harness, &["run=1"]).receipts(), ["re_000001"]);
        if for_whom == "plan:spring" {
            freeze(&harness, "spring");
        }
        supersede(&harness, StateTag::Done, for_whom);
        for other in others {
            ask(&harness, &[other]).is_replay_of("re_000001");
        }
        ask(&harness, &[]).is_replay_of("re_000001");
        assert_eq!(refunds(&harness), 1, "{for_whom}");
        let again = ask(&harness, &[named]);
        assert_eq!(again.status(), "done", "{again:#?}");
        assert_eq!(again.json["replayed"], false, "{again:#?}");
        assert_eq!(again.receipts(), ["re_000002"], "{again:#?}");
        ask(&harness, &[named]).is_replay_of("re_000002");
        ask(&harness, &[others[0]]).is_replay_of("re_000001");
        assert_eq!(refunds(&harness), 2, "{for_whom}");
        for look in [&["ledger", "verify"][..], &["ledger", "list"]] {
            assert_eq!(harness.run(look).unwrap().code, Some(0), "{look:?}");
        }
    }
}

#[test]
fn many_callers_of_a_later_epoch_are_one_effect() {
    let harness = Harness::new("refunds").unwrap();
    assert_eq!(ask(&harness, &[]).status(), "done");
    supersede(&harness, StateTag::Done, "run:2");
    let start = |n: usize| {
        let context: &[&str] = if n.is_multiple_of(2) { &["run=2"] } else { &[] };
        Running::start(&mut harness.call(TOOL, &refund("R-1", "at once"), context)).unwrap()
    };
    let running: Vec<Running> = (0..10).map(start).collect();
    for (n, one) in running.into_iter().enumerate() {
        let heard = Heard::of(&one.wait(LONG).unwrap());
        assert!(heard.is_success() || heard.status() == "pending", "{n}: {heard:#?}");
    }
    ask(&harness, &["run=2"]).is_replay_of("re_000002");
    ask(&harness, &[]).is_replay_of("re_000001");
    assert_eq!(refunds(&harness), 2);
}

/// A tool that stops because the shop says that all is done: each caller is told of its own epoch.
#[test]
fn a_tool_that_asks_for_nothing_is_told_its_own_epoch() {
    let harness = Harness::new("refunds").unwrap();
    assert_eq!(ask(&harness, &[]).status(), "done");
    supersede(&harness, StateTag::Done, "run:2");
    assert_eq!(ask(&harness, &["run=2"]).receipts(), ["re_000002"]);
    let settings = Settings { shop_follows: true, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
    for _ in 0..2 {
        ask(&harness, &["run=2"]).is_replay_of("re_000002");
        ask(&harness, &[]).is_replay_of("re_000001");
    }
    assert_eq!(refunds(&harness), 2);
}

/// A decision over a later epoch opens the one after it, and only to those it names.
#[test]
fn epochs_follow_one_another() {
    let harness = Harness::new("refunds").unwrap();
    assert_eq!(ask(&harness, &[]).status(), "done");
    supersede(&harness, StateTag::Done, "run:2");
    assert_eq!(ask(&harness, &["run=2"]).receipts(), ["re_000002"]);
    supersede(&harness, StateTag::Done, "permit:P-1");
    let grant = ["permit", "grant", "P-1", "--tenant", "acme", "--operation", "create-refund", "--count", "1"];
    let granted = harness.run(&[&grant[..], &["--reason", "one more", "--actor", "ann"]].concat()).unwrap();
    assert_eq!(granted.code, Some(0), "{}", granted.stderr);
    ask(&harness, &["run=2"]).is_replay_of("re_000002");
    // The permit opens the second later epoch, which only run 2 can reach.
    ask(&harness, &["permit=P-1"]).is_replay_of("re_000001");
    assert_eq!(ask(&harness, &["run=2", "permit=P-1"]).receipts(), ["re_000003"]);
    ask(&harness, &["run=2", "permit=P-1"]).is_replay_of("re_000003");
    assert_eq!(refunds(&harness), 3);
}

/// What nobody knows can be replaced too: the others go on hearing that nobody knows, and send nothing.
#[test]
fn those_who_are_not_named_never_send_for_a_superseded_row() {
    let harness = with_limits("refunds", "request-deadline = \"500ms\"\nidle = \"500ms\"");
    let provider = harness.provider();
    provider.mode(Mode::HangBefore, "POST", "/v1/refunds", Some(1)).unwrap();
    assert_eq!(ask(&harness, &[]).status(), "pending");
    supersede(&harness, StateTag::Unknown, "run:2");
    for _ in 0..3 {
        assert_eq!(ask(&harness, &[]).status(), "pending");
    }
    assert_eq!(refunds(&harness), 0);
    let again = ask(&harness, &["run=2"]);
    assert_eq!(again.status(), "done", "{again:#?}");
    assert_eq!(ask(&harness, &[]).status(), "pending");
    assert_eq!(refunds(&harness), 1);
}
