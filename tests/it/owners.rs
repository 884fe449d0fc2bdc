//! Many processes and one ledger: whoever holds the file may hang, stop or die while the others send.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::{Mode, Rule};

use crate::agent::{Heard, call, hear, refund, refunds, with_limits};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

fn wait_for_refunds(harness: &Harness, count: usize) {
    let started = Instant::now();
    while refunds(harness) < count {
        assert!(started.elapsed() < LONG, "{} of {count} refunds", refunds(harness));
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first refund hangs, so its process keeps the ledger; the second one's answer takes 2 s.
/// Returns both once the provider has made both refunds.
fn owner_and_client(harness: &Harness) -> (Running, Running) {
    let provider = harness.provider();
    for (mode, after) in [(Mode::CompleteThenHang, 0), (Mode::Slow, 0)] {
        let rule = Rule {
            mode,
            path: "/v1/refunds".to_owned(),
            method: Some("POST".to_owned()),
            after,
            times: Some(1),
            every: None,
        };
        provider.rule(&rule).unwrap();
    }
    let owner = Running::start(&mut harness.call(TOOL, &refund("R-1", "owner"), &[])).unwrap();
    wait_for_refunds(harness, 1);
    let client = Running::start(&mut harness.call(TOOL, &refund("R-2", "client"), &[])).unwrap();
    wait_for_refunds(harness, 2);
    (owner, client)
}

fn lists_down(harness: &Harness, lists_down: bool) {
    let settings = Settings { lists_down, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
}

fn receipt_of(harness: &Harness, return_id: &str) -> String {
    let effects = harness.provider().effects().unwrap();
    let ours = |id: &str| {
        effects
            .iter()
            .filter(|effect| effect.object["metadata"]["return"] == id)
            .map(|effect| effect.id.clone())
            .collect::<Vec<_>>()
    };
    let receipts = ours(return_id);
    assert_eq!(receipts.len(), 1, "{return_id}: {receipts:?}");
    receipts[0].clone()
}

/// No lookup can tell it: the answer itself must have been stored, by whoever has the file then.
#[test]
fn an_answer_is_stored_though_the_owner_was_killed() {
    let harness = Harness::new("refunds").unwrap();
    let (owner, client) = owner_and_client(&harness);
    lists_down(&harness, true);
    owner.kill().unwrap();
    let heard = Heard::of(&client.wait(LONG).unwrap());
    assert!(heard.is_success(), "{heard:#?}");
    let again = call(&harness, TOOL, &refund("R-2", "again"), &[]);
    again.is_replay_of(&receipt_of(&harness, "R-2"));
    lists_down(&harness, false);
    let first = call(&harness, TOOL, &refund("R-1", "again"), &[]);
    assert!(first.is_success(), "{first:#?}");
    assert_eq!(first.receipts(), [receipt_of(&harness, "R-1")], "{first:#?}");
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn an_answer_is_stored_though_the_owner_stood_still() {
    let harness = Harness::new("refunds").unwrap();
    let (owner, client) = owner_and_client(&harness);
    lists_down(&harness, true);
    signal(&owner, "STOP");
    thread::sleep(Duration::from_secs(4));
    signal(&owner, "CONT");
    let heard = Heard::of(&client.wait(LONG).unwrap());
    assert!(heard.is_success() || heard.status() == "pending", "{heard:#?}");
    let again = call(&harness, TOOL, &refund("R-2", "again"), &[]);
    again.is_replay_of(&receipt_of(&harness, "R-2"));
    owner.kill().unwrap();
    assert_eq!(refunds(&harness), 2);
}

fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    let status = std::process::Command::new("kill").args(["-s", name, &pid]).status();
    assert!(status.unwrap().success(), "{name} {pid}");
}

#[test]
fn sixteen_processes_with_sixteen_returns_all_end() {
    let harness = Harness::new("refunds").unwrap();
    let all: Vec<Running> = (0..16)
        .map(|n| {
            let arguments = refund(&format!("R-{n}"), "at once");
            Running::start(&mut harness.call(TOOL, &arguments, &[])).unwrap()
        })
        .collect();
    for (n, running) in all.into_iter().enumerate() {
        let heard = Heard::of(&running.wait(LONG).unwrap());
        assert!(heard.is_success() || heard.status() == "pending", "{n}: {heard:#?}");
    }
    for n in 0..16 {
        let id = format!("R-{n}");
        let again = call(&harness, TOOL, &refund(&id, "again"), &[]);
        again.is_replay_of(&receipt_of(&harness, &id));
    }
    assert_eq!(refunds(&harness), 16);
}

/// SIGTERM at any moment: the process ends by itself, what it sent is stored, the rest is not sent.
#[test]
fn a_process_that_is_asked_to_end_at_any_moment_leaves_one_refund() {
    let harness = with_limits("refunds", "");
    for n in 0..20_u64 {
        let id = format!("R-{}", 100 + n);
        let mut command = harness.call(TOOL, &refund(&id, "asked to end"), &[]);
        let running = Running::start(&mut command).unwrap();
        thread::sleep(Duration::from_millis(10 + 8 * n));
        signal(&running, "TERM");
        let run = running.wait(LONG).unwrap();
        let before = refunds(&harness);
        lists_down(&harness, true);
        let next = call(&harness, TOOL, &refund(&id, "again"), &[]);
        lists_down(&harness, false);
        assert!(next.is_success(), "{n}: {next:#?}\nended: {run:?}");
        assert_eq!(next.receipts(), [receipt_of(&harness, &id)], "{n}: before {before}");
    }
    assert_eq!(refunds(&harness), 20);
}

/// The disk is full or there are no descriptors left, at every amount of them.
#[test]
fn shortage_never_makes_two_and_never_loses_one() {
    let harness = with_limits("refunds", "");
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let size = fs::metadata(harness.home().join("ledger.redb")).unwrap().len() / 1024;
    let files = (0..12).map(|n| format!("ulimit -f {}", n * size / 11));
    let descriptors = (8..32).step_by(2).map(|n| format!("ulimit -n {n}"));
    for (n, limit) in files.chain(descriptors).enumerate() {
        let id = format!("R-{}", 200 + n);
        let call_it = |reason: &str| harness.call(TOOL, &refund(&id, reason), &[]);
        let full = call_it("while it is short");
        let mut shell = harness.command();
        let program = full.get_program().to_owned();
        let mut bash = std::process::Command::new("bash");
        bash.arg("-c").arg(format!("trap '' XFSZ; {limit}; exec \"$@\"")).arg("bash");
        bash.arg(program).args(full.get_args());
        for (name, value) in shell.env("LC_ALL", "C").get_envs() {
            bash.env(name, value.unwrap());
        }
        let run = oncegate_tests::harness::Run::of(&mut bash).unwrap();
        assert_eq!(run.signal, None, "{limit}: {run:?}");
        let mut next = hear(&mut call_it("again"));
        if next.status() == "pending" {
            next = hear(&mut call_it("and again"));
        }
        // Where bytes may have left and the list shows nothing, 90 s have to pass.
        let sent = harness.provider().log().unwrap();
        let posts = sent.iter().filter(|entry| entry.method == "POST" && entry.body.contains(&id)).count();
        assert!(posts <= 1, "{limit}: {posts} posts");
        assert!(next.is_success(), "{limit}: {next:#?}\nshort: {run:?}");
        assert_eq!(next.receipts(), [receipt_of(&harness, &id)], "{limit}");
    }
}
