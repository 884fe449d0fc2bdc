//! A host that stops without dying, and one that is asked to end: nobody sends for it, nothing is
//! sent late, and what was sent is stored.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness, Options, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, Signal};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, packed, refund, refunds, with_limits};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);
/// The host is stopped for longer than `send-within`.
const LIMITS: &str = "send-within = \"1s\"\nconnect-within = \"1s\"\nrequest-deadline = \"2s\"\n\
                      idle = \"2s\"\nattach = \"500ms\"";
const STOPPED_FOR: Duration = Duration::from_millis(1_500);
/// What the program adds to all its deadlines before it gives up on a host that lives: 30 s.
const OVERDUE: Duration = Duration::from_secs(36);

/// The lookup may conclude soon that nothing happened, if only the sender is known to have stopped.
pub(crate) struct Soon {
    pub(crate) harness: Harness,
    _folder: TempDir,
}

pub(crate) fn soon() -> Soon {
    let contract = Guest::example("refunds").unwrap().contract;
    let short = contract.replace("absent-after = \"90s\"", "absent-after = \"300ms\"");
    let folder = tempfile::tempdir().unwrap();
    let options = Options { limits: LIMITS.to_owned(), ..Options::default() };
    let harness = Harness::with(packed(folder.path(), &short), options).unwrap();
    let known = call(&harness, TOOL, &refund("R-1", "a known object"), &[]);
    assert_eq!(known.status(), "done", "{known:#?}");
    Soon { harness, _folder: folder }
}

/// A process that stops itself at that point of a refund of R-2.
pub(crate) fn stopped(harness: &Harness, point: KillPoint) -> Running {
    let mut command = harness.call(TOOL, &refund("R-2", "the one that stops"), &[]);
    let point = KillPoint { signal: Signal::Stop, ..point };
    point.apply(&mut command).unwrap();
    let running = Running::start(&mut command).unwrap();
    wait_until("the host stops", || state(running.pid()) == Some('T'));
    running
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "not within {LONG:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The letter that the system gives a process: T is stopped.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

pub(crate) fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    let status = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(status.unwrap().success(), "{name} {pid}");
}

/// A process that has the ledger and lives: a call whose provider hangs, under a patient policy.
pub(crate) fn owner(harness: &Harness) -> Running {
    let policy = fs::read_to_string(harness.home().join("policy.toml")).unwrap();
    let patient = policy
        .replace("request-deadline = \"2s\"", "request-deadline = \"90s\"")
        .replace("idle = \"2s\"", "idle = \"90s\"");
    assert_ne!(patient, policy);
    let file = harness.folder().join("patient.toml");
    fs::write(&file, patient).unwrap();
    let before = refunds(harness);
    let (provider, mode) = (harness.provider(), Mode::CompleteThenHang);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut command = harness.call(TOOL, &refund("R-99", "has the ledger"), &[]);
    command.arg("--policy").arg(file);
    let running = Running::start(&mut command).unwrap();
    wait_until("the owner's refund is made", || refunds(harness) > before);
    running
}

/// The refund's own connection is the second one: the first asks the shop.
fn points() -> [KillPoint; 4] {
    [
        // The dispatch is durable by the last sync before the connection.
        KillPoint::after(Call::Fdatasync, 6),
        KillPoint::before(Call::Connect, 2),
        KillPoint::after(Call::Connect, 2),
        KillPoint::before(Call::Fdatasync, 6),
    ]
}

#[test]
fn a_host_that_wakes_too_late_sends_nothing() {
    for point in points() {
        let soon = soon();
        let harness = &soon.harness;
        let sleeper = stopped(harness, point);
        thread::sleep(STOPPED_FOR);
        assert_eq!(refunds(harness), 1, "{point}");
        signal(&sleeper, "CONT");
        let woken = Heard::of(&sleeper.wait(LONG).unwrap());
        assert_eq!(refunds(harness), 1, "{point}: sent late: {woken:#?}");
        assert!(!woken.is_success(), "{point}: {woken:#?}");
        // It is proven that nothing happened: the next call may send.
        let next = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
        assert_eq!(next.status(), "done", "{point}: {next:#?}");
        assert_eq!(refunds(harness), 2, "{point}");
    }
}

#[test]
fn a_host_that_wakes_in_time_sends_once() {
    let soon = soon();
    let harness = &soon.harness;
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(woken.status(), "done", "{woken:#?}");
    assert_eq!(refunds(harness), 2);
}

#[test]
fn nobody_sends_for_a_stopped_host_that_has_the_ledger() {
    let soon = soon();
    let harness = &soon.harness;
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    thread::sleep(STOPPED_FOR);
    let started = Instant::now();
    let run = Run::of(&mut harness.call(TOOL, &refund("R-2", "in its place"), &[])).unwrap();
    assert_eq!(refunds(harness), 1, "{run:?}");
    assert!(started.elapsed() < Duration::from_secs(40), "{run:?}");
    let other = Heard::of(&run);
    assert!(["pending", "refused"].contains(&other.status()), "{other:#?}");
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), 1, "sent late: {woken:#?}");
    let next = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
    assert_eq!(next.status(), "done", "{next:#?}");
    assert_eq!(refunds(harness), 2);
}

#[test]
fn nobody_sends_for_a_stopped_host_that_uses_anothers_ledger() {
    let soon = soon();
    let harness = &soon.harness;
    let owner = owner(harness);
    let before = refunds(harness);
    // A client of the ledger makes no syncs of its own.
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    thread::sleep(STOPPED_FOR);
    for reason in ["in its place", "once more"] {
        let other = call(harness, TOOL, &refund("R-2", reason), &[]);
        assert_eq!(other.status(), "pending", "{other:#?}");
        assert_eq!(refunds(harness), before, "{other:#?}");
    }
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), before, "sent late: {woken:#?}");
    let next = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
    assert_eq!(next.status(), "done", "{next:#?}");
    assert_eq!(refunds(harness), before + 1);
    owner.kill().unwrap();
    let held = call(harness, TOOL, &refund("R-99", "settled by another"), &[]);
    assert!(held.is_success(), "{held:#?}");
    assert_eq!(refunds(harness), before + 1);
}

/// Silence is not a stop. The host has passed its last check and is about to write: whoever waits,
/// however long, however often the lookup finds nothing, must not send in its place.
#[test]
fn a_host_that_is_silent_past_every_deadline_is_not_replaced() {
    let soon = soon();
    let harness = &soon.harness;
    let owner = owner(harness);
    let before = refunds(harness);
    let sleeper = stopped(harness, KillPoint::before(Call::Send, 2));
    thread::sleep(OVERDUE);
    for reason in ["in its place", "once more", "and again"] {
        let other = call(harness, TOOL, &refund("R-2", reason), &[]);
        assert_eq!(other.status(), "pending", "{other:#?}");
        assert_eq!(refunds(harness), before, "{other:#?}");
    }
    // These bytes could not be held back; they are the only ones.
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), before + 1, "{woken:#?}");
    let receipt = harness.provider().effects().unwrap()[before].id.clone();
    let last = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
    assert!(last.is_success(), "{last:#?}\nwoken: {woken:#?}");
    assert_eq!(last.receipts(), [receipt.as_str()], "{last:#?}");
    call(harness, TOOL, &refund("R-2", "and once more"), &[]).is_replay_of(&receipt);
    assert_eq!(refunds(harness), before + 1);
    owner.kill().unwrap();
}

/// The same, but the check is still to come: another process has called the attempt lost by then.
#[test]
fn a_host_that_was_given_up_sends_nothing_when_it_wakes() {
    let soon = soon();
    let harness = &soon.harness;
    let owner = owner(harness);
    let before = refunds(harness);
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    thread::sleep(OVERDUE);
    let other = call(harness, TOOL, &refund("R-2", "in its place"), &[]);
    assert_eq!(other.status(), "pending", "{other:#?}");
    assert_eq!(refunds(harness), before, "{other:#?}");
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), before, "sent late: {woken:#?}");
    let mut last = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
    for _ in 0..2 {
        if last.status() == "pending" {
            last = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
        }
    }
    assert!(last.is_success(), "{last:#?}\nwoken: {woken:#?}");
    assert_eq!(refunds(harness), before + 1);
    owner.kill().unwrap();
}

#[test]
fn a_host_that_is_asked_to_end_stores_what_it_sent() {
    for name in ["TERM", "INT"] {
        let harness = with_limits("refunds", "");
        let provider = harness.provider();
        provider.mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut command = harness.call(TOOL, &refund("R-1", "first"), &[]);
        let running = Running::start(&mut command).unwrap();
        wait_until("the refund is made", || refunds(&harness) == 1);
        signal(&running, name);
        let run = running.wait(LONG).unwrap();
        assert_eq!(run.signal, None, "{name}: {run:?}");
        // The answer must be in the ledger: the provider's lists cannot tell it.
        let lists_down = Settings { lists_down: true, ..Settings::default() };
        provider.settings(&lists_down).unwrap();
        let receipt = provider.effects().unwrap()[0].id.clone();
        let again = call(&harness, TOOL, &refund("R-1", "second"), &[]);
        again.is_replay_of(&receipt);
        assert_eq!(refunds(&harness), 1, "{name}");
    }
}

/// The agent hears `pending` at its own deadline; the answer that comes later is stored.
#[test]
fn an_answer_that_is_later_than_the_agent_is_stored() {
    let harness = with_limits("refunds", "answer-within = \"300ms\"");
    let provider = harness.provider();
    provider.mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = hear(&mut harness.call(TOOL, &refund("R-1", "first"), &[]));
    assert_eq!(first.status(), "pending", "{first:#?}");
    assert_eq!(first.json["detail"], "in_progress", "{first:#?}");
    let lists_down = Settings { lists_down: true, ..Settings::default() };
    provider.settings(&lists_down).unwrap();
    let receipt = provider.effects().unwrap()[0].id.clone();
    let again = call(&harness, TOOL, &refund("R-1", "second"), &[]);
    again.is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

/// The files of the ledger, and what became of each.
fn ledger_files(harness: &Harness) -> Vec<PathBuf> {
    let entries = fs::read_dir(harness.home()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.to_string_lossy().contains("ledger.redb"))
        .collect()
}

/// A ledger that does not know what was sent must not send: restored, emptied, gone, swapped.
#[test]
fn a_ledger_that_is_behind_refuses_effects() {
    let harness = Harness::new("refunds").unwrap();
    let (file, backup) = (harness.home().join("ledger.redb"), harness.folder().join("backup"));
    fs::copy(&file, &backup).unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let receipt = first.receipts()[0].to_owned();
    let current = harness.folder().join("current");
    fs::copy(&file, &current).unwrap();

    let refused = |what: &str| {
        let heard = call(&harness, TOOL, &refund("R-1", what), &[]);
        assert_eq!(heard.status(), "refused", "{what}: {heard:#?}");
        assert_eq!(heard.json["code"], "ledger_unavailable", "{what}: {heard:#?}");
        assert_eq!(refunds(&harness), 1, "{what}");
    };
    fs::copy(&backup, &file).unwrap();
    refused("an old copy");
    fs::write(&file, b"").unwrap();
    refused("an empty file");
    fs::write(&file, b"no ledger at all").unwrap();
    refused("another file");
    fs::remove_file(&file).unwrap();
    refused("no file");
    let other = Harness::new("refunds").unwrap();
    let heard = call(&other, TOOL, &refund("R-5", "elsewhere"), &[]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    fs::copy(other.home().join("ledger.redb"), &file).unwrap();
    refused("another ledger");

    // The true one goes on.
    fs::copy(&current, &file).unwrap();
    call(&harness, TOOL, &refund("R-1", "back again"), &[]).is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_ledger_without_its_marker_refuses_effects() {
    let harness = Harness::new("refunds").unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let files = ledger_files(&harness);
    let markers = files.iter().filter(|path| path.extension().is_some_and(|end| end == "head"));
    let markers: Vec<&PathBuf> = markers.collect();
    assert_eq!(markers.len(), 1, "{files:?}");
    fs::remove_file(markers[0]).unwrap();
    let heard = call(&harness, TOOL, &refund("R-2", "second"), &[]);
    assert_eq!(heard.json["code"], "ledger_unavailable", "{heard:#?}");
    assert_eq!(refunds(&harness), 1);
}

/// A path longer than a socket's name may be is no reason for a second process to fail.
#[test]
fn a_long_path_is_shared_by_two_processes() {
    let harness = with_limits("refunds", LIMITS);
    let folder = harness.folder().join("d".repeat(60)).join("e".repeat(60));
    fs::create_dir_all(&folder).unwrap();
    let ledger = format!("redb:{}", folder.join("ledger.redb").display());
    let init = harness.run(&["--ledger", &ledger, "ledger", "init"]).unwrap();
    assert_eq!(init.code, Some(0), "{}", init.stderr);
    let command = |id: &str| {
        let mut command = harness.call(TOOL, &refund(id, "first"), &[]);
        command.args(["--ledger", &ledger]);
        command
    };
    let (provider, mode) = (harness.provider(), Mode::CompleteThenHang);
    provider.mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let owner = Running::start(&mut command("R-1")).unwrap();
    wait_until("the first refund is made", || refunds(&harness) == 1);
    let second = hear(&mut command("R-2"));
    assert_eq!(second.status(), "done", "{second:#?}");
    let same = hear(&mut command("R-1"));
    assert_ne!(same.status(), "refused", "{same:#?}");
    owner.wait(LONG).unwrap();
    assert!(hear(&mut command("R-1")).is_success());
    assert_eq!(refunds(&harness), 2);
}
