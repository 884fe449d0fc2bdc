//! Kills while the provider goes wrong as well, while another process has the ledger, and where
//! only sending again can tell.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, log_calls, read_calls};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, refund, with_limits};
use crate::kills::{calls_of_one, kill_at, points, receipts, restart, soon};

/// Kills at each of these points, in returns that are numbered from there on, and brings each to its end.
fn kill_each(harness: &Harness, points: &[KillPoint], from: usize, before: impl Fn()) {
    for (n, point) in points.iter().enumerate() {
        let return_id = format!("R-{}", from + n);
        before();
        let run = kill_at(harness, *point, &return_id);
        let (last, _) = restart(harness, &return_id);
        assert!(last.is_success(), "{point}: {last:#?}\nkilled: {run:?}");
        let made = receipts(harness, &return_id);
        assert_eq!(made.len(), 1, "{point}: {made:?} {last:#?}");
        assert_eq!(last.receipts(), [made[0].as_str()], "{point}: {last:#?}");
    }
}

/// The return reads "refunded" as soon as the money went back, so that the tool asks for nothing.
#[test]
fn a_kill_with_a_shop_that_follows_the_money_leaves_one_refund() {
    let soon = soon();
    let points = points(&calls_of_one(&soon.harness, "R-2"));
    let follows = Settings { shop_follows: true, ..Settings::default() };
    soon.harness.provider().settings(&follows).unwrap();
    kill_each(&soon.harness, &points, 1000, || {});
}

#[test]
fn a_kill_while_the_provider_goes_wrong_leaves_one_refund() {
    let soon = soon();
    let points = points(&calls_of_one(&soon.harness, "R-2"));
    // The syncs of steps e to h, the refund's own connection, and what comes after it.
    let late: Vec<KillPoint> = points.into_iter().filter(|point| is_late(*point)).collect();
    let modes = [
        Mode::Error500After,
        Mode::CompleteThenReset,
        Mode::Truncated,
        Mode::Garbage,
        Mode::ResetAfterHeaders,
        Mode::ResetBefore,
        Mode::Error503Before,
        Mode::Reject402,
    ];
    for (n, mode) in modes.into_iter().enumerate() {
        let provider = soon.harness.provider();
        let points: Vec<KillPoint> = late.iter().copied().skip(n % 3).step_by(3).collect();
        kill_each(&soon.harness, &points, 10_000 * (n + 1), || {
            provider.clear().unwrap();
            provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
        });
    }
}

fn is_late(point: KillPoint) -> bool {
    match point.call {
        Call::Fdatasync | Call::Fsync => point.nth >= 6,
        Call::Connect | Call::Send | Call::Recv => point.nth >= 2,
    }
}

/// The killed process has no file open: another one, which lives, keeps the ledger for it.
#[test]
fn a_kill_of_a_process_that_uses_anothers_ledger_leaves_one_refund() {
    let soon = soon();
    let harness = &soon.harness;
    let provider = harness.provider();
    let mode = Mode::CompleteThenHang;
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut owner = harness.call("issue-refund", &refund("R-99", "has the ledger"), &[]);
    let owner = Running::start(&mut owner).unwrap();
    let started = Instant::now();
    while receipts(harness, "R-99").is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "the owner does not come up");
        thread::sleep(Duration::from_millis(5));
    }
    let mut points = Vec::new();
    for call in [Call::Connect, Call::Send, Call::Recv] {
        for nth in 1..=3 {
            if call != Call::Recv {
                points.push(KillPoint::before(call, nth));
            }
            points.push(KillPoint::after(call, nth));
        }
    }
    kill_each(harness, &points, 1000, || {});
    owner.kill().unwrap();
    let (held, _) = restart(harness, "R-99");
    assert!(held.is_success(), "{held:#?}");
    assert_eq!(receipts(harness, "R-99").len(), 1);
}

fn email(to: &str, words: &str) -> Value {
    json!({ "subject": words, "body": words, "recipients": [to] })
}

fn send(harness: &Harness, to: &str, words: &str, point: Option<KillPoint>) -> Run {
    let mut command = harness.call("send-campaign", &email(to, words), &["trigger=spring"]);
    if let Some(point) = point {
        point.apply(&mut command).unwrap();
    }
    Run::of(&mut command).unwrap()
}

fn emails_to(harness: &Harness, to: &str) -> usize {
    let effects = harness.provider().effects().unwrap();
    effects.iter().filter(|effect| effect.object["to"] == to).count()
}

/// No lookup works, so what was cut off is sent again, and that is cut off too: one email.
#[test]
fn a_kill_where_only_sending_again_can_tell_leaves_one_email() {
    let harness = with_limits("campaign", "");
    let lists_down = Settings { lists_down: true, ..Settings::default() };
    harness.provider().settings(&lists_down).unwrap();
    let log = harness.folder().join("calls");
    let mut watched = harness.call("send-campaign", &email("first@example.com", "x"), &["trigger=spring"]);
    log_calls(&mut watched, &log).unwrap();
    assert_eq!(Heard::of(&Run::of(&mut watched).unwrap()).status(), "done");
    let points = points(&read_calls(&log).unwrap());
    for (n, point) in points.iter().enumerate() {
        let to = format!("reader{n}@example.com");
        send(&harness, &to, "before the kill", Some(*point));
        // The second kill is at another point each time.
        let second = points[(n * 7 + 3) % points.len()];
        send(&harness, &to, "before the second kill", Some(second));
        let at = format!("{point}, then {second}");
        let last = call(&harness, "send-campaign", &email(&to, "at last"), &["trigger=spring"]);
        assert!(last.is_success(), "{at}: {last:#?}");
        assert_eq!(emails_to(&harness, &to), 1, "{at}: {last:#?}");
    }
}
