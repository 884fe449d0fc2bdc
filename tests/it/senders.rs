//! Senders that wake, move or lose their way between the attempts of one effect: one effect, whatever
//! becomes of them. Those that stand still or die are in `crash_states` and `kills`, clocks that are
//! days off in `attacks`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use oncegate_ledger::{Effects, Event, Outcome, StateTag, StreamKind};
use oncegate_tests::harness::{Harness, Options};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::domains::{Dedupe, Settings};
use oncegate_tests::provider::mode::Mode;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::agent::{Heard, call, hear, refund, refunds};
use crate::attacks::{changed, clock};
use crate::crash_states::{owner, signal, soon, stopped};
use crate::kills::{kill_at, with_absent_after};
use crate::relay::Relay;

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
const LONG: Duration = Duration::from_secs(60);
const HOUR: i64 = 3_600;

fn posts(harness: &Harness) -> usize {
    let log = harness.provider().log().unwrap();
    log.iter().filter(|one| one.method == "POST" && one.path == REFUNDS).count()
}

/// Says that an attempt is over and what came of it, as a person would who knows.
fn decide_done(harness: &Harness, receipt: &str) {
    Runtime::new().unwrap().block_on(async {
        let path = harness.home().join("ledger.redb");
        let ledger = oncegate_ledger::open(&format!("redb:{}", path.display())).await.unwrap();
        let effects = Effects::new(ledger);
        for stream in effects.ledger.list(StateTag::Dispatched, None, 10).await.unwrap() {
            let row = effects.get(stream.id).await.unwrap().unwrap();
            if stream.kind != StreamKind::Effect || !row.label().contains("R-2") {
                continue;
            }
            let (attempt, at) = (row.attempts[0].id, row.updated_at + 1);
            let why = "its host does not answer".to_owned();
            let lost = Event::Lost { attempt, at, why, sender_stopped: false };
            let row = effects.append(stream.id, row.version, lost, Vec::new()).await.unwrap();
            let outcome = Outcome::Done { receipt: receipt.to_owned() };
            let (actor, reason) = ("ann".to_owned(), "paid back by hand".to_owned());
            let decided = Event::Decided { actor, reason, outcome, at: at + 1, decision: None };
            effects.append(stream.id, row.version, decided, Vec::new()).await.unwrap();
            return;
        }
        panic!("no row of R-2");
    });
}

/// Stopped between the commit and the first byte; the row is settled while it sleeps.
#[test]
fn a_sender_that_wakes_after_its_row_was_settled_sends_nothing() {
    let soon = soon();
    let harness = &soon.harness;
    let owner = owner(harness);
    let before = refunds(harness);
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    decide_done(harness, "by-hand-1");
    call(harness, TOOL, &refund("R-2", "while it sleeps"), &[]).is_replay_of("by-hand-1");
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), before, "sent late: {woken:#?}");
    // That it sent nothing contradicts what was decided: a person looks again.
    let heard = call(harness, TOOL, &refund("R-2", "afterwards"), &[]);
    assert_eq!(heard.json["detail"], "frozen", "{heard:#?}");
    assert_eq!(heard.receipts(), ["by-hand-1"], "{heard:#?}");
    assert_eq!(refunds(harness), before);
    owner.kill().unwrap();
}

/// A provider that drops repeats, behind something that can go away; lists say nothing.
struct Deduping {
    harness: Harness,
    relay: Relay,
    _folder: TempDir,
}

fn deduping() -> Deduping {
    let (guest, folder) = changed(&[(
        "dedupe = \"none\"",
        "dedupe = \"key-and-body\"\n  dedupe-at = \"header:Idempotency-Key\"\n  \
         dedupe-window = \"24h\"\n  dedupe-scope = \"credential\"",
    )]);
    let limits = "request-deadline = \"500ms\"\nidle = \"500ms\"".to_owned();
    let harness = Harness::with(guest, Options { limits, ..Options::default() }).unwrap();
    let settings = Settings {
        dedupe: [("refund".to_owned(), Dedupe::KeyAndBody)].into(),
        lists_down: true,
        ..Settings::default()
    };
    harness.provider().settings(&settings).unwrap();
    let relay = Relay::before(&harness.provider_url());
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let pay = policy.find("[endpoint.pay]").unwrap();
    let relayed = policy[pay..].replacen(&harness.provider_url(), &relay.url(), 1);
    fs::write(&file, format!("{}{relayed}", &policy[..pay])).unwrap();
    Deduping { harness, relay, _folder: folder }
}

impl Deduping {
    /// A refund that was made and of which nobody heard, and no way to send again while it hangs.
    fn lose_one(&self) {
        self.harness.provider().mode(Mode::CompleteThenHang, "POST", REFUNDS, None).unwrap();
        let lost = call(&self.harness, TOOL, &refund("R-1", "lost"), &[]);
        assert_eq!(lost.status(), "pending", "{lost:#?}");
        self.harness.provider().clear().unwrap();
        assert_eq!(refunds(&self.harness), 1);
    }
}

/// Zero bytes prove something of the second attempt and nothing of the first.
#[test]
fn a_refused_connection_on_a_resend_proves_nothing_of_the_first_attempt() {
    let mut scene = deduping();
    scene.lose_one();
    scene.relay.go_away();
    for _ in 0..2 {
        let heard = call(&scene.harness, TOOL, &refund("R-1", "refused"), &[]);
        assert_eq!(heard.status(), "pending", "{heard:#?}");
        assert_eq!(heard.json["detail"], "unknown", "{heard:#?}");
    }
    scene.relay.come_back();
    let before = scene.relay.passed();
    let again = call(&scene.harness, TOOL, &refund("R-1", "again"), &[]);
    assert!(again.is_success(), "{again:#?}");
    assert_eq!(again.receipts(), ["re_000001"], "{again:#?}");
    assert!(scene.relay.passed() > before);
    assert_eq!(refunds(&scene.harness), 1);
}

/// The provider may compare its keys within one credential: another one is no repeat to it.
#[test]
fn a_credential_that_was_rotated_between_attempts_sends_nothing_again() {
    let scene = deduping();
    scene.lose_one();
    let before = posts(&scene.harness);
    for _ in 0..2 {
        let mut rotated = scene.harness.call(TOOL, &refund("R-1", "rotated"), &[]);
        rotated.env("PAY_KEY", "sk_test_rotated");
        let heard = hear(&mut rotated);
        assert_eq!(heard.status(), "pending", "{heard:#?}");
        assert_eq!(posts(&scene.harness), before, "{heard:#?}");
    }
    let again = call(&scene.harness, TOOL, &refund("R-1", "with the first one"), &[]);
    assert!(again.is_success(), "{again:#?}");
    assert_eq!(again.receipts(), ["re_000001"], "{again:#?}");
    assert_eq!(refunds(&scene.harness), 1);
}

fn at(harness: &Harness, clock: &PathBuf, hours: i64, id: &str) -> Heard {
    let mut command = harness.call(TOOL, &refund(id, "x"), &[]);
    command.env("LD_PRELOAD", clock).env("CLOCK_SHIFT", (hours * HOUR).to_string());
    hear(&mut command)
}

/// An hour either way: back, nothing is sent again; on, it is within the window.
#[test]
fn a_clock_that_is_stepped_by_an_hour_makes_one() {
    let scene = deduping();
    let clock = clock(scene.harness.folder());
    scene.lose_one();
    let before = posts(&scene.harness);
    let back = at(&scene.harness, &clock, -1, "R-1");
    assert_eq!(back.status(), "pending", "{back:#?}");
    assert_eq!(posts(&scene.harness), before, "{back:#?}");
    let on = at(&scene.harness, &clock, 1, "R-1");
    assert_eq!(on.receipts(), ["re_000001"], "{on:#?}");
    for hours in [-1, 0, 1] {
        at(&scene.harness, &clock, hours, "R-1").is_replay_of("re_000001");
    }
    assert_eq!(refunds(&scene.harness), 1);
}

/// A wait is over by time that passed, not by a clock that says so.
#[test]
fn a_clock_that_is_stepped_ends_no_wait() {
    let soon = with_absent_after("4s");
    let harness = &soon.harness;
    let clock = clock(harness.folder());
    assert!(kill_at(harness, KillPoint::before(Call::Connect, 2), "R-3").was_killed());
    for hours in [1, -1, 0] {
        let heard = at(harness, &clock, hours, "R-3");
        assert_eq!(heard.status(), "pending", "{hours} h: {heard:#?}");
    }
    assert_eq!(posts(harness), 1);
    let run = harness.run(&["ledger", "reconcile"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(at(harness, &clock, 1, "R-3").status(), "done");
    at(harness, &clock, -1, "R-3").is_replay_of("re_000002");
    assert_eq!(refunds(harness), 2);
}

/// All files beside the ledger are put back with it: before sending nothing here can tell, so what the
/// lost part knew is done again. The provider's list shows it afterwards, and the key is frozen.
#[test]
fn a_ledger_that_is_restored_with_its_marker_is_noticed_too_late() {
    let harness = Harness::new("refunds").unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-1", "x"), &[]).status(), "done");
    let copied = harness.folder().join("copied");
    copy(&harness.home(), &copied);
    assert_eq!(call(&harness, TOOL, &refund("R-2", "x"), &[]).status(), "done");
    fs::remove_dir_all(harness.home()).unwrap();
    copy(&copied, &harness.home());
    call(&harness, TOOL, &refund("R-1", "x"), &[]).is_replay_of("re_000001");
    let again = call(&harness, TOOL, &refund("R-2", "x"), &[]);
    assert_eq!(again.status(), "done", "{again:#?}");
    assert_eq!(refunds(&harness), 3);
    let frozen = call(&harness, TOOL, &refund("R-2", "x"), &[]);
    assert_eq!(frozen.json["detail"], "frozen", "{frozen:#?}");
    assert_eq!(refunds(&harness), 3);
    assert_eq!(harness.run(&["ledger", "verify"]).unwrap().code, Some(0));
}

fn copy(from: &PathBuf, to: &PathBuf) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}
