//! What senders left open is found out by itself: beside calls, and again and again by command.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_ledger::StateTag;
use oncegate_tests::harness::{Harness, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;

use crate::agent::{call, refund, with_limits};
use crate::book;

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);

fn lists_down(harness: &Harness, lists_down: bool) {
    harness.provider().settings(&Settings { lists_down, ..Settings::default() }).unwrap();
}

/// A refund that was made and of which nobody heard.
fn with_an_open_refund() -> Harness {
    let harness = with_limits("refunds", "request-deadline = \"4s\"\nidle = \"4s\"\nattach = \"200ms\"");
    lists_down(&harness, true);
    harness.provider().mode(Mode::CompleteThenReset, "POST", "/v1/refunds", Some(1)).unwrap();
    let lost = call(&harness, TOOL, &refund("R-1", "lost"), &[]);
    assert_eq!(lost.status(), "pending", "{lost:#?}");
    harness
}

fn gets(harness: &Harness) -> usize {
    let log = harness.provider().log().unwrap();
    log.iter().filter(|one| one.method == "GET" && one.path == "/v1/refunds").count()
}

#[test]
fn reconciling_again_and_again_settles_and_ends_cleanly() {
    for name in ["INT", "TERM"] {
        let harness = with_an_open_refund();
        let mut command = harness.command();
        command.args(["ledger", "reconcile", "--every", "1s"]);
        let running = Running::start(&mut command).unwrap();
        let line = running.read_line(LONG).unwrap();
        assert!(line.contains("unknown"), "{line}");
        // Waits double: in five seconds there are looks at 0, 1 and 3 s.
        let before = gets(&harness);
        thread::sleep(Duration::from_secs(5));
        let looks = gets(&harness) - before;
        assert!((1..=3).contains(&looks), "{looks} looks");
        lists_down(&harness, false);
        let started = Instant::now();
        loop {
            let line = running.read_line(LONG).unwrap();
            if line.contains("re_000001") {
                break;
            }
            assert!(started.elapsed() < LONG, "{line}");
        }
        let pid = running.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        let run = running.wait(LONG).unwrap();
        assert_eq!(run.code, Some(0), "{name}: {run:?}");
        lists_down(&harness, true);
        call(&harness, TOOL, &refund("R-1", "again"), &[]).is_replay_of("re_000001");
        assert_eq!(harness.provider().count("refund").unwrap(), 1);
    }
}

#[test]
fn a_call_that_takes_its_time_settles_what_others_left() {
    let harness = with_an_open_refund();
    lists_down(&harness, false);
    let provider = harness.provider();
    provider.mode(Mode::HeldOpen, "POST", "/v1/refunds", Some(1)).unwrap();
    let started = Instant::now();
    call(&harness, TOOL, &refund("R-2", "slow"), &[]);
    assert!(started.elapsed() < Duration::from_secs(20));
    let rows = book::rows(&harness);
    let settled = rows.iter().find(|row| row.receipt.as_deref() == Some("re_000001"));
    assert_eq!(settled.map(|row| row.state), Some(StateTag::Done), "{rows:?}");
    assert_eq!(provider.count("refund").unwrap(), 2);
}

/// Nothing beside a call keeps it from ending.
#[test]
fn a_short_call_is_not_held_up_by_what_others_left() {
    let harness = with_an_open_refund();
    // Lists answer so slowly that a look would take longer than the call may.
    let settings = Settings { latency_ms: 3_000, lists_down: true, ..Settings::default() };
    let second = call(&harness, TOOL, &refund("R-2", "short"), &[]);
    assert_eq!(second.status(), "done", "{second:#?}");
    harness.provider().settings(&settings).unwrap();
    let started = Instant::now();
    call(&harness, TOOL, &refund("R-2", "short"), &[]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(harness.provider().count("refund").unwrap(), 2);
}

#[test]
fn a_period_has_a_unit_and_no_key() {
    let harness = Harness::new("refunds").unwrap();
    for wrong in [&["--every", "30"][..], &["--every", "0s"], &["--every", "1s", "ab"], &["--every", "1s", "--confirm"]]
    {
        let mut arguments = vec!["ledger", "reconcile"];
        arguments.extend(wrong);
        assert_eq!(harness.run(&arguments).unwrap().code, Some(2), "{wrong:?}");
    }
}
