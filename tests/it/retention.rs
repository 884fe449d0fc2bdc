//! Pruned effects go on answering: identity outlives data.

use std::fs;
use std::thread;
use std::time::Duration;

use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{call, is_sound, refund, refunds};
use crate::verbs::{row, show};

const TOOL: &str = "issue-refund";
/// A little more than the replay window of these tests.
const LATER: Duration = Duration::from_millis(1_200);

/// A provider that does not answer is given up soon.
fn harness() -> Harness {
    with_limits("connect-within = \"1s\"\nrequest-deadline = \"1s\"\nidle = \"1s\"")
}

fn with_limits(limits: &str) -> Harness {
    let options = Options {
        limits: limits.to_owned(),
        policy: "\n[retention]\nreplay-window = \"1s\"\n".to_owned(),
        ..Options::default()
    };
    Harness::with(Guest::example("refunds").unwrap(), options).unwrap()
}

#[track_caller]
fn prune(harness: &Harness, words: &[&str]) -> Value {
    let run = harness.run(&[&["ledger", "prune", "--json"], words].concat()).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run.json().unwrap()
}

#[test]
fn what_is_pruned_still_answers_and_still_compares() {
    let harness = harness();
    let parent = ["parent=case-1"];
    let receipt = call(&harness, TOOL, &refund("R-1", "first"), &parent).receipts()[0].to_owned();
    call(&harness, TOOL, &refund("R-2", "no parent"), &[]);
    let young = prune(&harness, &[]);
    assert_eq!((&young["pruned"], &young["kept"]["replay_window"]), (&json!(0), &json!(2)), "{young}");
    thread::sleep(LATER);
    let open = prune(&harness, &[]);
    assert_eq!(open["kept"], json!({ "parent_open": 1, "no_parent": 1 }), "{open}");
    let close =
        || harness.run(&["ledger", "close-parent", "case-1", "--reason", "closed", "--json"]).unwrap().json().unwrap();
    assert_eq!((&close()["recorded_before"], &close()["recorded_before"]), (&json!(false), &json!(true)));
    let would = prune(&harness, &["--dry-run"]);
    assert_eq!((&would["pruned"], would["would_prune"].as_array().unwrap().len()), (&json!(0), 1), "{would}");
    assert_eq!(row(&harness, "refund R-1")["pruned"], false);
    let younger = prune(&harness, &["--before", "1h"]);
    assert_eq!((&younger["pruned"], &younger["kept"]["younger"]), (&json!(0), &json!(2)), "{younger}");
    let done = prune(&harness, &[]);
    assert_eq!(done["pruned"], 1, "{done}");
    assert!(done["records_removed"].as_u64().unwrap() >= 3, "{done}");
    is_sound(&harness);

    let shown = show(&harness, "refund R-1");
    assert_eq!((&shown["pruned"], &shown["state"], &shown["receipt"]), (&json!(true), &json!("done"), &json!(receipt)));
    assert_eq!(shown["history"].as_array().unwrap().len(), 1, "{shown}");
    assert!(!shown.to_string().contains("metadata"), "a byte of the request is left: {shown}");
    for reason in ["in other words", "and others"] {
        call(&harness, TOOL, &refund("R-1", reason), &parent).is_replay_of(&receipt);
    }
    let other = json!({ "return_id": "R-1", "reason": "less", "amount": 1 });
    let reused = call(&harness, TOOL, &other, &parent);
    assert_eq!(reused.json["code"], "idempotency_key_reused", "{reused:#?}");
    assert_eq!(refunds(&harness), 2);
    assert_eq!(prune(&harness, &[])["pruned"], 0);
    assert_eq!(prune(&harness, &["--without-parent"])["pruned"], 1);
    is_sound(&harness);
}

#[test]
fn what_is_not_decided_is_never_pruned() {
    let harness = harness();
    let lists_down = Settings { lists_down: true, ..Settings::default() };
    harness.provider().settings(&lists_down).unwrap();
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    call(&harness, TOOL, &refund("R-1", "unknown"), &[]);
    harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-2", "refused"), &[]).status(), "failed");
    thread::sleep(LATER);
    let told = prune(&harness, &["--without-parent"]);
    assert_eq!(told["pruned"], 1, "{told}");
    assert_eq!(row(&harness, "refund R-1")["state"], "unknown");
    assert_eq!(row(&harness, "refund R-1")["pruned"], false);
    // Proven not to have happened: the next call sends, under a key that the provider never saw.
    let keys = || -> Vec<String> {
        let log = harness.provider().log().unwrap();
        log.iter().map(|logged| format!("{logged:?}")).collect()
    };
    assert!(!keys().is_empty());
    let again = call(&harness, TOOL, &refund("R-2", "again"), &[]);
    assert_eq!(again.status(), "done", "{again:#?}");
    assert_eq!(row(&harness, "refund R-2")["generation"], 1);
    thread::sleep(LATER);
    assert_eq!(prune(&harness, &["--without-parent"])["pruned"], 1, "and pruned again when it is done");
    let receipt = again.receipts()[0].to_owned();
    call(&harness, TOOL, &refund("R-2", "once more"), &[]).is_replay_of(&receipt);
    is_sound(&harness);
}

#[test]
fn large_answers_give_their_space_back() {
    let harness = with_limits("");
    harness.provider().mode(Mode::Big20Mb, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "large"), &[]);
    let receipt = first.receipts()[0].to_owned();
    let small = call(&harness, TOOL, &refund("R-2", "small"), &[]);
    let space = || {
        use std::os::unix::fs::MetadataExt;
        let files = fs::read_dir(harness.home().join("ledger.redb.segments")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum::<u64>()
    };
    let before = space();
    assert!(before > 15_000_000, "{before}");
    thread::sleep(LATER);
    let told = prune(&harness, &["--without-parent"]);
    assert!(told["bytes_freed"].as_u64().unwrap() > 15_000_000, "{told}");
    assert!(space() < before / 10, "{} of {before}", space());
    call(&harness, TOOL, &refund("R-1", "again"), &[]).is_replay_of(&receipt);
    call(&harness, TOOL, &refund("R-2", "again"), &[]).is_replay_of(small.receipts()[0]);
    is_sound(&harness);
}

/// Killed at any sync of a run, the ledger is sound, every receipt is there, and the next run ends it.
#[test]
fn a_kill_while_pruning_loses_nothing() {
    let mut killed = 0;
    for nth in 1..=14 {
        let harness = harness();
        let receipts: Vec<String> = (1..=3)
            .map(|n| call(&harness, TOOL, &refund(&format!("R-{n}"), "first"), &[]).receipts()[0].to_owned())
            .collect();
        thread::sleep(LATER);
        let mut command = harness.command();
        command.args(["ledger", "prune", "--without-parent"]);
        KillPoint::after(Call::Fdatasync, nth).apply(&mut command).unwrap();
        killed += usize::from(Run::of(&mut command).unwrap().was_killed());
        is_sound(&harness);
        for (n, receipt) in (1..).zip(&receipts) {
            call(&harness, TOOL, &refund(&format!("R-{n}"), "after the kill"), &[]).is_replay_of(receipt);
        }
        prune(&harness, &["--without-parent"]);
        for n in 1..=3 {
            let shown = show(&harness, &format!("refund R-{n}"));
            assert_eq!(shown["pruned"], true, "{nth}: {shown}");
            assert_eq!(shown["history"].as_array().unwrap().len(), 1, "{nth}: {shown}");
        }
        is_sound(&harness);
        assert_eq!(refunds(&harness), 3, "{nth}");
    }
    assert!(killed > 3, "{killed} kills");
}

/// Locks of hosts that ended say nothing any more once nothing of theirs is open.
#[test]
fn locks_of_hosts_that_left_nothing_open_are_removed() {
    let harness = harness();
    call(&harness, TOOL, &refund("R-1", "done"), &[]);
    let mut command = harness.call(TOOL, &refund("R-2", "killed"), &[]);
    KillPoint::before(Call::Send, 2).apply(&mut command).unwrap();
    assert!(Run::of(&mut command).unwrap().was_killed());
    let locks = || {
        let files = fs::read_dir(harness.home().join("ledger.redb.hosts")).unwrap();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "lock")).count()
    };
    assert_eq!(locks(), 2);
    let told = prune(&harness, &[]);
    assert_eq!((&told["host_locks_removed"], locks()), (&json!(1), 1), "{told}");
}
