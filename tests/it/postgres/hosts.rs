//! Two and three hosts, one effect: whichever is asked, killed or stopped.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Running;
use oncegate_tests::provider::mode::Mode;
use rustix::process::{Pid, Signal, kill_process};

use super::cluster::Cluster;
use super::{Fleet, WITHIN};
use crate::agent::Heard;

fn signal(running: &Running, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(running.pid()).unwrap()).unwrap(), signal).unwrap();
}

/// Waits until the provider has made so many.
fn made(fleet: &Fleet<'_>, refunds: usize) {
    let until = Instant::now() + WITHIN;
    while fleet.refunds() < refunds {
        assert!(Instant::now() < until, "the provider has made {} of {refunds}", fleet.refunds());
        thread::sleep(Duration::from_millis(10));
    }
}

fn slowly(fleet: &Fleet<'_>, mode: Mode) {
    fleet.harness.provider().mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
}

#[test]
fn every_host_answers_with_the_first_receipt() {
    let fleet = Fleet::of(Cluster::shared(), 3);
    let first = fleet.call(0, "R-1001", "it came broken");
    assert_eq!(first.status(), "done", "{first:#?}");
    let receipt = first.receipts()[0].to_owned();
    for host in [1, 2, 0, 1] {
        fleet.call(host, "R-1001", &format!("said otherwise on {host}")).is_replay_of(&receipt);
    }
    assert_eq!(fleet.refunds(), 1);
    let second = fleet.call(2, "R-1002", "another");
    assert_eq!(second.status(), "done", "{second:#?}");
    assert_eq!(fleet.refunds(), 2);
    let doctor = fleet.run(1, &["doctor"]);
    assert!(doctor.stdout.contains("other hosts may use it too"), "{doctor:?}");
    let listed = fleet.fine(1, &["ledger", "list", "--state", "done", "--json"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    let verified = fleet.fine(2, &["ledger", "verify"]);
    assert!(verified.stdout.contains("sound: "), "{verified:?}");
    let hosts = fleet.hosts(0);
    assert!(hosts.windows(2).all(|pair| pair[0]["fence"].as_u64() < pair[1]["fence"].as_u64()), "{hosts:#?}");
    assert!(hosts.len() >= 3, "{hosts:#?}");
}

#[test]
fn who_waits_on_another_host_hears_the_first_ones_receipt() {
    let fleet = Fleet::of(Cluster::shared(), 2);
    // Compiled, and connected once.
    assert_eq!(fleet.call(1, "R-1", "first").status(), "done");
    slowly(&fleet, Mode::Slow);
    let one = Running::start(&mut fleet.refund(0, "R-1001", "on one")).unwrap();
    made(&fleet, 2);
    let mut others = vec![fleet.call(1, "R-1001", "on the other")];
    // Its sender gives signs of life: who asks meanwhile calls nothing unknown.
    let unknown = fleet.fine(1, &["ledger", "list", "--state", "unknown", "--json"]);
    assert_eq!(unknown.stdout.lines().count(), 0, "{unknown:?}");
    let until = Instant::now() + WITHIN;
    // However slow the machine: nobody who asks before the end makes another.
    while others.last().is_some_and(|heard| heard.status() == "pending") && Instant::now() < until {
        others.push(fleet.call(1, "R-1001", "and again"));
    }
    let one = Heard::of(&one.wait(WITHIN).unwrap());
    assert!(one.is_success(), "{one:#?}");
    let last = others.pop().unwrap();
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(last.receipts(), one.receipts());
    assert_eq!(fleet.refunds(), 2);
}

#[test]
fn what_a_killed_host_left_is_found_by_another() {
    let fleet = Fleet::of(Cluster::shared(), 2);
    slowly(&fleet, Mode::CompleteThenHang);
    let one = Running::start(&mut fleet.refund(0, "R-1001", "before the kill")).unwrap();
    made(&fleet, 1);
    one.kill().unwrap();
    // Nobody knows yet that it is gone: it was heard of a moment ago.
    let early = fleet.run(1, &["ledger", "list", "--state", "dispatched", "--json"]);
    assert_eq!(early.stdout.lines().count(), 1, "{early:?}");
    fleet.silence();
    assert!(fleet.hosts(1).iter().any(|host| host["suspicious"] == true), "{:#?}", fleet.hosts(1));
    let found = fleet.run(1, &["ledger", "reconcile"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    let heard = fleet.call(1, "R-1001", "after the kill");
    assert_eq!(heard.status(), "already_done", "{heard:#?}");
    let receipt = heard.receipts()[0].to_owned();
    // The machine comes back.
    fleet.call(0, "R-1001", "after the kill").is_replay_of(&receipt);
    assert_eq!(fleet.refunds(), 1);
}

#[test]
fn what_never_arrived_is_not_absent_while_its_host_may_only_be_slow() {
    let fleet = Fleet::of(Cluster::shared(), 2);
    assert_eq!(fleet.call(1, "R-1", "a known object").status(), "done");
    slowly(&fleet, Mode::HangBefore);
    let one = Running::start(&mut fleet.refund(0, "R-1001", "never arrives")).unwrap();
    let until = Instant::now() + WITHIN;
    while fleet.fine(1, &["ledger", "list", "--state", "dispatched", "--json"]).stdout.is_empty() {
        assert!(Instant::now() < until, "nothing was dispatched");
    }
    signal(&one, Signal::STOP);
    fleet.silence();
    let heard = fleet.call(1, "R-1001", "on the other");
    assert_eq!(heard.status(), "pending", "{heard:#?}");
    let unknown = fleet.fine(1, &["ledger", "list", "--state", "unknown", "--json"]);
    assert_eq!(unknown.stdout.lines().count(), 1, "{unknown:?}");
    assert_eq!(fleet.refunds(), 1, "and nothing was sent again");
    one.kill().unwrap();
}

#[test]
fn a_host_that_was_asleep_brings_late_evidence_and_nothing_else() {
    let fleet = Fleet::of(Cluster::shared(), 2);
    slowly(&fleet, Mode::Slow);
    let one = Running::start(&mut fleet.refund(0, "R-1001", "falls asleep")).unwrap();
    made(&fleet, 1);
    signal(&one, Signal::STOP);
    fleet.silence();
    let found = fleet.run(1, &["ledger", "reconcile"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    let heard = fleet.call(1, "R-1001", "while it sleeps");
    assert!(heard.is_success(), "{heard:#?}");
    let receipt = heard.receipts()[0].to_owned();
    signal(&one, Signal::CONT);
    let woken = Heard::of(&one.wait(WITHIN).unwrap());
    assert!(woken.is_success(), "{woken:#?}");
    assert_eq!(woken.receipts(), [receipt.as_str()]);
    fleet.call(0, "R-1001", "later").is_replay_of(&receipt);
    assert_eq!(fleet.refunds(), 1);
    fleet.fine(1, &["ledger", "verify"]);
}
