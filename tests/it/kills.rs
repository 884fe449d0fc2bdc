//! SIGKILL at every sync and every socket call of one refund. Whatever the moment, the same call in
//! other words brings it to its end, and the provider has made exactly one.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use oncegate_tests::harness::{Guest, Harness, Options, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, Seen, log_calls, read_calls};
use oncegate_tests::localstripe::{self, Localstripe};
use oncegate_tests::provider::domains::Settings;
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, packed, refund};

const TOOL: &str = "issue-refund";
/// Calls after which an interrupted one must have ended.
const RESTARTS_MAX: usize = 4;

/// A harness whose contract lets a settle lookup conclude soon that nothing happened.
pub(crate) struct Soon {
    pub(crate) harness: Harness,
    _folder: TempDir,
}

pub(crate) fn soon() -> Soon {
    with_absent_after("300ms")
}

/// The same with any wait; a call waits for 2 s at most, an operator as long as it takes.
pub(crate) fn with_absent_after(wait: &str) -> Soon {
    let contract = Guest::example("refunds").unwrap().contract;
    let short = contract.replace("absent-after = \"90s\"", &format!("absent-after = \"{wait}\""));
    assert_ne!(short, contract);
    let folder = tempfile::tempdir().unwrap();
    let guest = packed(folder.path(), &short);
    let harness = Harness::with(guest, Options::default()).unwrap();
    // A known object: without it a settle lookup that finds nothing proves nothing.
    let known = call(&harness, TOOL, &refund("R-1", "a known object"), &[]);
    assert_eq!(known.status(), "done", "{known:#?}");
    Soon { harness, _folder: folder }
}

/// The calls of one undisturbed refund, in order.
pub(crate) fn calls_of_one(harness: &Harness, return_id: &str) -> Vec<Seen> {
    let log = harness.folder().join("calls");
    let mut command = harness.call(TOOL, &refund(return_id, "watched"), &[]);
    log_calls(&mut command, &log).unwrap();
    let heard = Heard::of(&Run::of(&mut command).unwrap());
    assert_eq!(heard.status(), "done", "{heard:#?}");
    read_calls(&log).unwrap()
}

/// Every point at which one of these calls can be cut off.
pub(crate) fn points(calls: &[Seen]) -> Vec<KillPoint> {
    let mut points = Vec::new();
    for seen in calls {
        let call = kind(&seen.call);
        if call != Call::Recv {
            points.push(KillPoint::before(call, seen.nth));
        }
        points.push(KillPoint::after(call, seen.nth));
    }
    points
}

fn kind(word: &str) -> Call {
    let kinds = [Call::Fdatasync, Call::Fsync, Call::Connect, Call::Send, Call::Recv];
    let known = kinds.into_iter().find(|call| call.to_string() == word);
    known.unwrap_or_else(|| panic!("the shim counts no {word}"))
}

/// Kills one call there. What it said before it died, if it got so far.
pub(crate) fn kill_at(harness: &Harness, point: KillPoint, return_id: &str) -> Run {
    let mut command = harness.call(TOOL, &refund(return_id, "before the kill"), &[]);
    point.apply(&mut command).unwrap();
    Run::of(&mut command).unwrap()
}

/// Calls again, in other words each time, until it ends; the last answer, and how many there were.
pub(crate) fn restart(harness: &Harness, return_id: &str) -> (Heard, usize) {
    for n in 1..=RESTARTS_MAX {
        let heard = call(harness, TOOL, &refund(return_id, &format!("restart {n}")), &[]);
        // A refusal of the provider's is proof that nothing happened: the agent may ask again.
        let goes_on = matches!(heard.status(), "pending" | "failed");
        if !goes_on || n == RESTARTS_MAX {
            return (heard, n);
        }
    }
    unreachable!("the loop returns at its last turn")
}

/// The receipts of all refunds of a return, by the provider's own account.
pub(crate) fn receipts(harness: &Harness, return_id: &str) -> Vec<String> {
    let effects = harness.provider().effects().unwrap();
    effects
        .iter()
        .filter(|effect| effect.object["metadata"]["return"] == return_id)
        .map(|effect| effect.id.clone())
        .collect()
}

#[test]
fn a_kill_at_any_call_leaves_one_refund() {
    let soon = soon();
    let harness = &soon.harness;
    let points = points(&calls_of_one(harness, "R-2"));
    assert!(points.len() > 30, "{points:?}");
    let (mut killed, mut restarts) = (0, 0);
    for (n, point) in points.iter().enumerate() {
        let return_id = format!("R-{}", 1000 + n);
        let run = kill_at(harness, *point, &return_id);
        killed += usize::from(run.was_killed());
        let (last, calls) = restart(harness, &return_id);
        restarts += calls;
        assert!(last.is_success(), "{point}: {last:#?}\nkilled: {run:?}");
        let made = receipts(harness, &return_id);
        assert_eq!(made.len(), 1, "{point}: {made:?} {last:#?}");
        assert_eq!(last.receipts(), [made[0].as_str()], "{point}: {last:#?}");
        // What was told before the kill stays true.
        if let Ok(first) = run.json() {
            assert_eq!(first["effects"][0]["receipt"], made[0], "{point}: {run:?}");
        }
    }
    // The last few may come too late in a run that has less to do.
    assert!(killed + 3 >= points.len(), "{killed} of {}", points.len());
    println!("{killed} kills at {} points, {restarts} restarts", points.len());
}

/// In a ledger of its own the first call also binds account and recipe, and there is no known
/// object: what was not sent stays unknown, since nothing can prove it.
#[test]
fn a_kill_in_a_new_ledger_never_makes_two() {
    let soon = soon();
    let calls = calls_of_one(&soon.harness, "R-2");
    for (n, point) in points(&calls).into_iter().enumerate().step_by(3) {
        let return_id = format!("R-{}", 2000 + n);
        let ledger = format!("redb:{}", soon.harness.folder().join(format!("{n}.redb")).display());
        let init = soon.harness.run(&["--ledger", &ledger, "ledger", "init"]).unwrap();
        assert_eq!(init.code, Some(0), "{}", init.stderr);
        let command = |reason: &str| {
            let mut command = soon.harness.call(TOOL, &refund(&return_id, reason), &[]);
            command.args(["--ledger", &ledger]);
            command
        };
        let mut first = command("before the kill");
        point.apply(&mut first).unwrap();
        Run::of(&mut first).unwrap();
        let heard = Heard::of(&Run::of(&mut command("after it")).unwrap());
        let made = receipts(&soon.harness, &return_id);
        if heard.is_success() {
            assert_eq!(made.len(), 1, "{point}: {heard:#?}");
            assert_eq!(heard.receipts(), [made[0].as_str()], "{point}");
        } else {
            assert_eq!(heard.status(), "pending", "{point}: {heard:#?}");
            assert_eq!(made.len(), 0, "{point}: the lookup can see it: {heard:#?}");
        }
        // Another refund is the known object that was missing.
        let mut known = soon.harness.call(TOOL, &refund(&format!("R-{}", 3000 + n), "known"), &[]);
        known.args(["--ledger", &ledger]);
        let known = Heard::of(&Run::of(&mut known).unwrap());
        assert_eq!(known.status(), "done", "{point}: {known:#?}");
        let last = Heard::of(&Run::of(&mut command("at the end")).unwrap());
        assert!(last.is_success(), "{point}: {last:#?}");
        assert_eq!(receipts(&soon.harness, &return_id).len(), 1, "{point}");
    }
}

/// The recovery is killed as well, at each of its own calls.
#[test]
fn a_kill_during_recovery_leaves_one_refund() {
    let soon = soon();
    let harness = &soon.harness;
    let calls = calls_of_one(harness, "R-2");
    let second_send = nth_of(&calls, Call::Send, 2);
    for (case, first) in
        [KillPoint::before(Call::Send, second_send), KillPoint::after(Call::Send, second_send)].into_iter().enumerate()
    {
        for (n, point) in recovery_points().into_iter().enumerate() {
            let return_id = format!("R-{}", 4000 + 100 * case + n);
            kill_at(harness, first, &return_id);
            kill_at(harness, point, &return_id);
            let (last, _) = restart(harness, &return_id);
            let at = format!("{first}, then {point}");
            assert!(last.is_success(), "{at}: {last:#?}");
            let made = receipts(harness, &return_id);
            assert_eq!(made.len(), 1, "{at}: {made:?}");
            assert_eq!(last.receipts(), [made[0].as_str()], "{at}: {last:#?}");
        }
    }
}

fn recovery_points() -> Vec<KillPoint> {
    let syncs = (5..=16).step_by(2);
    let mut points: Vec<KillPoint> = syncs.map(|n| KillPoint::before(Call::Fdatasync, n)).collect();
    for n in 2..=6 {
        points.push(KillPoint::before(Call::Send, n));
        points.push(KillPoint::after(Call::Recv, n));
    }
    points
}

/// The number that a kind's Nth call has; the shim counts each kind by itself.
pub(crate) fn nth_of(calls: &[Seen], call: Call, nth: usize) -> u32 {
    let of_kind: Vec<&Seen> = calls.iter().filter(|seen| kind(&seen.call) == call).collect();
    of_kind[nth - 1].nth
}

/// The steps e to h in one call's log: the commit before the refund's connection (e),
/// its bytes (f), the commit of the answer (g) and of its meaning (h).
fn steps(calls: &[Seen], pay: &str) -> Vec<(&'static str, KillPoint)> {
    let sent = calls.iter().position(|seen| seen.call == "send" && seen.what == pay).unwrap();
    let connected = calls[..sent].iter().rposition(|seen| seen.call == "connect").unwrap();
    let received = sent + calls[sent..].iter().position(|seen| seen.call == "recv").unwrap();
    let syncs = |from: usize| calls[from..].iter().filter(|seen| seen.call == "fdatasync");
    let before: Vec<u32> =
        calls[..connected].iter().rev().take_while(|seen| seen.call == "fdatasync").map(|seen| seen.nth).collect();
    let after: Vec<u32> = syncs(received).map(|seen| seen.nth).collect();
    let (connect, send, recv) = (calls[connected].nth, calls[sent].nth, calls[received].nth);
    let mut steps = Vec::new();
    for nth in before {
        steps.push(("e", KillPoint::before(Call::Fdatasync, nth)));
        steps.push(("e", KillPoint::after(Call::Fdatasync, nth)));
    }
    steps.push(("f", KillPoint::before(Call::Connect, connect)));
    steps.push(("f", KillPoint::after(Call::Connect, connect)));
    steps.push(("f", KillPoint::before(Call::Send, send)));
    steps.push(("f", KillPoint::after(Call::Send, send)));
    steps.push(("f", KillPoint::after(Call::Recv, recv)));
    for (n, nth) in after.into_iter().take(4).enumerate() {
        let step = if n < 2 { "g" } else { "h" };
        steps.push((step, KillPoint::before(Call::Fdatasync, nth)));
        steps.push((step, KillPoint::after(Call::Fdatasync, nth)));
    }
    steps
}

/// The same against a server that others wrote, which knows no idempotency keys.
#[test]
fn a_kill_at_each_step_leaves_one_refund_at_localstripe() {
    let stripe = Localstripe::start().unwrap();
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stripe-contract.toml");
    let contract = fs::read_to_string(contract).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let guest = packed(folder.path(), &contract);
    let options = Options {
        endpoints: [("pay".to_owned(), stripe.url().to_owned())].into(),
        secrets: [("stripe".to_owned(), localstripe::SECRET.to_owned())].into(),
        ..Options::default()
    };
    let harness = Harness::with(guest, options).unwrap();
    let returned = |id: &str| {
        let charge = stripe.charge(50_000).unwrap();
        let seeds = json!({ "returns": [
            { "id": id, "charge": charge, "amount": 50_000, "status": "received" },
        ] });
        harness.provider().seed(&seeds).unwrap();
        charge
    };
    let charge = returned("R-1");
    let known = call(&harness, TOOL, &refund("R-1", "a known object"), &[]);
    assert_eq!(known.status(), "done", "{known:#?}");
    assert_eq!(stripe.refunds(&charge).unwrap().len(), 1);

    returned("R-2");
    let calls = calls_of_one(&harness, "R-2");
    let port = stripe.url().rsplit(':').next().unwrap();
    let steps = steps(&calls, &format!("port={port}"));
    assert!(["e", "f", "g", "h"].iter().all(|step| steps.iter().any(|(name, _)| name == step)));
    for (n, (step, point)) in steps.into_iter().enumerate() {
        let id = format!("R-{}", 1000 + n);
        let charge = returned(&id);
        let run = kill_at(&harness, point, &id);
        assert!(run.was_killed(), "{step} {point}: {run:?}");
        let (last, _) = restart(&harness, &id);
        assert!(last.is_success(), "{step} {point}: {last:#?}");
        let again = call(&harness, TOOL, &refund(&id, "and once more"), &["run=next-day"]);
        let made = stripe.refunds(&charge).unwrap();
        assert_eq!(made.len(), 1, "{step} {point}: {made:?}");
        let receipt = made[0]["id"].as_str().unwrap();
        assert_eq!(last.receipts(), [receipt], "{step} {point}: {last:#?}");
        again.is_replay_of(receipt);
    }
}

/// Eight at once in other words, and the one who has the ledger is killed again and again.
#[test]
fn a_crowd_whose_members_are_killed_makes_one_refund() {
    let soon = soon();
    let harness = &soon.harness;
    for round in 0..6_u64 {
        let return_id = format!("R-{}", 5000 + round);
        let crowd: Vec<Running> = (0..8)
            .map(|n| {
                let arguments = refund(&return_id, &format!("wording {n}"));
                Running::start(&mut harness.call(TOOL, &arguments, &[])).unwrap()
            })
            .collect();
        let mut alive = Vec::new();
        for (n, running) in crowd.into_iter().enumerate() {
            if n % 2 == 0 {
                thread::sleep(Duration::from_millis(17 * (round + 1)));
                running.kill().unwrap();
            } else {
                alive.push(running);
            }
        }
        let heard: Vec<Heard> =
            alive.into_iter().map(|running| Heard::of(&running.wait(Duration::from_secs(60)).unwrap())).collect();
        let (last, _) = restart(harness, &return_id);
        assert!(last.is_success(), "round {round}: {last:#?}\ncrowd: {heard:#?}");
        let made = receipts(harness, &return_id);
        assert_eq!(made.len(), 1, "round {round}: {made:?} {heard:#?}");
        assert_eq!(last.receipts(), [made[0].as_str()], "round {round}");
        for one in &heard {
            assert!(one.is_success() || one.status() == "pending", "round {round}: {one:#?}");
        }
    }
}

/// The provider's list shows a refund late, but within `absent-after`: no second one.
#[test]
fn a_lagging_list_is_waited_for() {
    let contract = Guest::example("refunds").unwrap().contract;
    let patient = contract.replace("absent-after = \"90s\"", "absent-after = \"1500ms\"");
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::with(packed(folder.path(), &patient), Options::default()).unwrap();
    let known = call(&harness, TOOL, &refund("R-1", "a known object"), &[]);
    assert_eq!(known.status(), "done", "{known:#?}");
    let calls = calls_of_one(&harness, "R-2");
    let lag = Settings { index_lag_ms: 1_200, ..Settings::default() };
    harness.provider().settings(&lag).unwrap();
    let send = nth_of(&calls, Call::Send, 2);
    for (n, point) in [KillPoint::after(Call::Send, send), KillPoint::after(Call::Recv, 2)].into_iter().enumerate() {
        let return_id = format!("R-{}", 6000 + n);
        assert!(kill_at(&harness, point, &return_id).was_killed());
        let (last, _) = restart(&harness, &return_id);
        let made = receipts(&harness, &return_id);
        assert_eq!(made.len(), 1, "{point}: {made:?} {last:#?}");
        assert!(last.is_success(), "{point}: {last:#?}");
        assert_eq!(last.receipts(), [made[0].as_str()], "{point}");
    }
}

/// What a false statement costs: the contract says that lists lag 300 ms, they lag for seconds.
#[test]
fn a_false_absent_after_makes_two() {
    let soon = soon();
    let calls = calls_of_one(&soon.harness, "R-2");
    let lag = Settings { index_lag_ms: 5_000, ..Settings::default() };
    soon.harness.provider().settings(&lag).unwrap();
    // The known object is old enough to be listed by then.
    thread::sleep(Duration::from_millis(5_100));
    let point = KillPoint::after(Call::Send, nth_of(&calls, Call::Send, 2));
    kill_at(&soon.harness, point, "R-3");
    let (last, _) = restart(&soon.harness, "R-3");
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(receipts(&soon.harness, "R-3").len(), 2, "{last:#?}");
}
