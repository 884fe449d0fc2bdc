//! `oncegate ledger reconcile` ends what a call may not conclude, and concludes nothing too early.

use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;

use crate::agent::{call, hear, refund};
use crate::kills::{calls_of_one, kill_at, receipts, with_absent_after};

const TOOL: &str = "issue-refund";

fn reconcile(harness: &Harness) -> Run {
    harness.run(&["ledger", "reconcile"]).unwrap()
}

fn lists_down(harness: &Harness, lists_down: bool) {
    let settings = Settings { lists_down, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
}

#[test]
fn what_was_not_sent_is_sent_after_reconciling() {
    let soon = with_absent_after("3s");
    let harness = &soon.harness;
    calls_of_one(harness, "R-2");
    let points = [KillPoint::before(Call::Connect, 2), KillPoint::before(Call::Send, 2)];
    for (n, point) in points.into_iter().enumerate() {
        let id = format!("R-{}", 10 + n);
        assert!(kill_at(harness, point, &id).was_killed(), "{point}");
        for reason in ["second", "third"] {
            let open = call(harness, TOOL, &refund(&id, reason), &[]);
            assert_eq!(open.status(), "pending", "{point}: {open:#?}");
            assert_eq!(open.json["detail"], "unknown", "{point}: {open:#?}");
        }
        assert_eq!(receipts(harness, &id).len(), 0, "{point}");
        let started = Instant::now();
        let run = reconcile(harness);
        assert_eq!(run.code, Some(0), "{point}: {run:?}");
        assert!(started.elapsed() >= Duration::from_secs(3), "{point}: concluded early");
        assert_eq!(receipts(harness, &id).len(), 0, "{point}: reconciling sent it");
        let sent = call(harness, TOOL, &refund(&id, "fourth"), &[]);
        assert_eq!(sent.status(), "done", "{point}: {sent:#?}");
        assert_eq!(receipts(harness, &id).len(), 1, "{point}");
    }
}

#[test]
fn what_was_sent_is_found_by_reconciling() {
    let soon = with_absent_after("3s");
    let harness = &soon.harness;
    calls_of_one(harness, "R-2");
    for (n, point) in [KillPoint::after(Call::Send, 2), KillPoint::after(Call::Recv, 2)].into_iter().enumerate() {
        let id = format!("R-{}", 10 + n);
        kill_at(harness, point, &id);
        lists_down(harness, true);
        let run = reconcile(harness);
        assert_ne!(run.code, Some(0), "{point}: it is still open: {run:?}");
        let open = call(harness, TOOL, &refund(&id, "while lists are down"), &[]);
        assert_eq!(open.status(), "pending", "{point}: {open:#?}");
        lists_down(harness, false);
        let run = reconcile(harness);
        assert_eq!(run.code, Some(0), "{point}: {run:?}");
        let made = receipts(harness, &id);
        assert_eq!(made.len(), 1, "{point}");
        // The ledger knows it now; no lookup is needed.
        lists_down(harness, true);
        call(harness, TOOL, &refund(&id, "afterwards"), &[]).is_replay_of(&made[0]);
        lists_down(harness, false);
    }
}

#[test]
fn what_another_process_is_sending_is_left_alone() {
    let soon = with_absent_after("300ms");
    let harness = &soon.harness;
    let (provider, mode) = (harness.provider(), Mode::HangBefore);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut command = harness.call(TOOL, &refund("R-3", "hangs"), &[]);
    let running = Running::start(&mut command).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let run = reconcile(harness);
    assert_ne!(run.code, Some(6), "{run:?}");
    let second = hear(&mut harness.call(TOOL, &refund("R-3", "second"), &[]));
    assert_eq!(second.status(), "pending", "{second:#?}");
    assert_eq!(second.json["detail"], "in_progress", "{second:#?}\n{run:?}");
    assert_eq!(receipts(harness, "R-3").len(), 0);
    running.kill().unwrap();
    assert_eq!(reconcile(harness).code, Some(0));
    let sent = call(harness, TOOL, &refund("R-3", "third"), &[]);
    assert_eq!(sent.status(), "done", "{sent:#?}");
    assert_eq!(receipts(harness, "R-3").len(), 1);
}

/// Nothing that is known to exist can be found either: "not found" proves nothing.
#[test]
fn without_a_known_object_nothing_is_concluded() {
    let soon = with_absent_after("300ms");
    let harness = &soon.harness;
    let ledger = format!("redb:{}", harness.folder().join("new.redb").display());
    assert_eq!(harness.run(&["--ledger", &ledger, "ledger", "init"]).unwrap().code, Some(0));
    let mut command = harness.call(TOOL, &refund("R-3", "first"), &[]);
    command.args(["--ledger", &ledger]);
    KillPoint::before(Call::Send, 2).apply(&mut command).unwrap();
    assert!(Run::of(&mut command).unwrap().was_killed());
    let run = harness.run(&["--ledger", &ledger, "ledger", "reconcile"]).unwrap();
    assert_ne!(run.code, Some(0), "{run:?}");
    let mut command = harness.call(TOOL, &refund("R-3", "second"), &[]);
    command.args(["--ledger", &ledger]);
    let open = hear(&mut command);
    assert_eq!(open.status(), "pending", "{open:#?}");
    assert_eq!(receipts(harness, "R-3").len(), 0);
}
