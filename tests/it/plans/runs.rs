//! Running a plan: killed, interrupted, refused, and taken up again.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::{Mode, Rule};

use serde_json::json;

use crate::campaign::Chance;

use super::{Standing, drive, emails, everyone_once, freeze, frozen, list, payouts, readers, refunds};

const TARGETS: usize = 200;
/// A run that has not come so far by then is stuck.
const PATIENCE: Duration = Duration::from_secs(100);

fn campaign(targets: usize) -> Harness {
    let harness = Harness::new("campaign").unwrap();
    let file = list(&harness, "readers.json", &readers(targets).to_string());
    let run = freeze(&harness, "spring", "send-campaign", &["--targets", &file, "--context", "trigger=spring"]);
    let said = frozen(&run);
    assert_eq!((&said["targets"], &said["written"]), (&targets.into(), &targets.into()), "{said}");
    assert_eq!(harness.provider().log().unwrap().len(), 0, "freezing sent something");
    Standing::of(&harness, "spring", &[]).is(&[("approved", targets as u64)], 4);
    harness
}

fn start(harness: &Harness, plan: &str) -> Running {
    let mut command = harness.command();
    command.args(["plan", "run", plan]).arg(harness.component());
    Running::start(&mut command).unwrap()
}

/// Waits until the provider has made so many, or the program has nothing left to do.
fn wait_for(harness: &Harness, count: usize) {
    let started = Instant::now();
    while emails(harness) < count {
        assert!(started.elapsed() < PATIENCE, "only {} of {count}", emails(harness));
        thread::sleep(Duration::from_millis(2));
    }
}

/// One email meets the mode, after so many.
fn once(harness: &Harness, mode: Mode, after: u64) {
    let rule = json!({ "mode": mode, "path": "/v1/emails", "method": "POST", "after": after, "times": 1 });
    harness.provider().rule(&serde_json::from_value::<Rule>(rule).unwrap()).unwrap();
}

#[test]
fn a_run_that_is_killed_again_and_again_reaches_everyone_once() {
    for seed in [1, 2] {
        let harness = campaign(TARGETS);
        let mut chance = Chance(seed);
        let mut kills = Vec::new();
        while emails(&harness) + 40 < TARGETS {
            let running = start(&harness, "spring");
            wait_for(&harness, emails(&harness) + 1 + chance.below(30) as usize);
            thread::sleep(Duration::from_micros(chance.below(20_000)));
            running.kill().unwrap();
            let made = emails(&harness);
            kills.push(made);
            let standing = Standing::of(&harness, "spring", &[]);
            assert_eq!(standing.code, Some(4), "{:#}", standing.json);
            // What is told as done is done; what was made and is not told is not told as unsent.
            let (done, unsent) = (standing.count("done") as usize, standing.count("approved") as usize);
            assert!(done <= made && made <= TARGETS - unsent, "{made} made: {:?}", standing.counts());
        }
        let run = drive(&harness, "spring", &["--at-once", "8"]);
        assert_eq!(run.code, Some(0), "seed {seed}, killed at {kills:?}: {run:?}");
        everyone_once(&harness, TARGETS);
        assert!(kills.len() >= 3, "{kills:?}");
        Standing::of(&harness, "spring", &[]).is(&[("done", TARGETS as u64)], 0);
        let requests = harness.provider().log().unwrap().len();
        assert_eq!(drive(&harness, "spring", &[]).code, Some(0));
        assert_eq!(harness.provider().log().unwrap().len(), requests, "a finished plan asks nobody anything");
    }
}

fn interrupted_by(signal: rustix::process::Signal) {
    let harness = campaign(60);
    let slow = Settings { latency_ms: 40, ..Settings::default() };
    harness.provider().settings(&slow).unwrap();
    let running = start(&harness, "spring");
    wait_for(&harness, 10);
    let pid = i32::try_from(running.pid()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    let run = running.wait(Duration::from_secs(30)).unwrap();
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("Go on with: oncegate plan run spring"), "{run:?}");
    // Nothing that was sent is lost: what the provider made is what the ledger calls done.
    let made = emails(&harness) as u64;
    assert!((10..60).contains(&made), "{made}");
    let standing = Standing::of(&harness, "spring", &[]);
    standing.is(&[("done", made), ("approved", 60 - made)], 4);
    let run = drive(&harness, "spring", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    everyone_once(&harness, 60);
}

#[test]
fn ctrl_c_starts_nothing_more_and_loses_nothing() {
    interrupted_by(rustix::process::Signal::INT);
}

#[test]
fn a_termination_starts_nothing_more_and_loses_nothing() {
    interrupted_by(rustix::process::Signal::TERM);
}

#[test]
fn lost_answers_are_found_within_the_run() {
    let harness = campaign(20);
    for (after, mode) in [(1, Mode::CompleteThenReset), (4, Mode::Error500After), (3, Mode::Truncated)] {
        once(&harness, mode, after);
    }
    let run = drive(&harness, "spring", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    everyone_once(&harness, 20);
}

#[test]
fn two_runs_at_once_make_one_of_each() {
    let harness = campaign(60);
    let first = start(&harness, "spring");
    let second = start(&harness, "spring");
    for running in [first, second] {
        let run = running.wait(PATIENCE).unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    everyone_once(&harness, 60);
}

#[test]
fn a_refused_target_is_told_and_tried_again_by_the_next_run() {
    let harness = campaign(5);
    once(&harness, Mode::Reject402, 2);
    let run = drive(&harness, "spring", &["--at-once", "1"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("failed\tcampaign-email"), "{run:?}");
    assert_eq!(emails(&harness), 4);
    let standing = Standing::of(&harness, "spring", &[]);
    standing.is(&[("done", 4), ("no-effect", 1)], 4);
    let run = drive(&harness, "spring", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    everyone_once(&harness, 5);
}

#[test]
fn what_nobody_can_find_out_is_left_open_and_said() {
    let harness = payouts();
    let file = list(&harness, "due.csv", "return_id,plan.amount\nR-1,100\nR-2,200\n");
    frozen(&freeze(&harness, "may", "pay", &["--targets", &file]));
    let down = Settings { lists_down: true, ..Settings::default() };
    harness.provider().settings(&down).unwrap();
    harness.provider().mode(Mode::CompleteThenReset, "POST", "/v1/refunds", Some(1)).unwrap();
    let run = drive(&harness, "may", &["--at-once", "1", "--json"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stdout.contains("\"status\":\"pending\""), "{run:?}");
    Standing::of(&harness, "may", &[]).is(&[("done", 1), ("unknown", 1)], 4);
    harness.provider().settings(&Settings::default()).unwrap();
    let run = drive(&harness, "may", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(refunds(&harness), 2);
    Standing::of(&harness, "may", &[]).is(&[("done", 2)], 0);
}

#[test]
fn a_plan_is_run_with_the_facts_that_it_was_frozen_with() {
    let harness = campaign(1);
    let run = drive(&harness, "spring", &["--context", "trigger=summer"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    let run = drive(&harness, "spring", &["--context", "run=first", "--context", "trigger=spring"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(emails(&harness), 1);
    assert_eq!(drive(&harness, "autumn", &[]).code, Some(1), "there is no such plan");
}
