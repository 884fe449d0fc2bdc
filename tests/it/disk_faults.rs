//! A disk that is full, can only be read, or fails: effects stop, nothing is told as done that is not
//! stored, the provider never makes two, and when the disk is well again all goes on.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::baddisk::{BadDisk, Fault};
use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, refund};
use crate::kills::{receipts, restart, soon};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);
const FAULTS: [Fault; 4] = [Fault::Full, Fault::ReadOnly, Fault::Write, Fault::Sync];
/// Between two calls of one refund at which the disk breaks; each fault begins at another. A disk that
/// stays broken costs seconds a call, since the process waits with the answer in its hands.
const STEP: usize = 7;
const STUMBLE_STEP: usize = 3;
/// A little longer than the program lets its agent wait.
const ANSWERED: Duration = Duration::from_millis(4_500);
/// No refund makes so many calls to its disk.
const CALLS_MAX: u32 = 400;
const ALL: u32 = u32::MAX;

/// The provider's lists do not answer: only what is stored can be told.
fn lists_down(harness: &Harness, lists_down: bool) {
    let settings = Settings { lists_down, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
}

/// A call on a disk that may be broken.
fn on(disk: &BadDisk, harness: &Harness, return_id: &str, words: &str) -> Command {
    let mut command = harness.call(TOOL, &refund(return_id, words), &[]);
    disk.under(&mut command).unwrap();
    command
}

#[track_caller]
fn no_panic(run: &Run) {
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert!(run.code.is_some(), "{run:?}");
}

/// What was heard on a broken disk: a success only if it is stored, else nothing that invites another
/// effect. Then, on a sound disk, the effect comes to its end.
#[track_caller]
fn ends_with_one(harness: &Harness, return_id: &str, run: &Run, at: &str) -> Heard {
    no_panic(run);
    let heard = Heard::of(run);
    if heard.is_success() {
        lists_down(harness, true);
        let again = call(harness, TOOL, &refund(return_id, "is it stored?"), &[]);
        lists_down(harness, false);
        let made = receipts(harness, return_id);
        assert_eq!(heard.receipts(), [made[0].as_str()], "{at}: {heard:#?}");
        again.is_replay_of(&made[0]);
    } else {
        let unavailable = heard.status() == "refused" && heard.json["code"] == "ledger_unavailable";
        // The marker could not be moved: the row says that nothing was sent.
        let nothing = heard.status() == "failed" && receipts(harness, return_id).is_empty();
        assert!(unavailable || nothing || heard.status() == "pending", "{at}: {heard:#?}");
    }
    assert!(receipts(harness, return_id).len() <= 1, "{at}");
    let (last, _) = restart(harness, return_id);
    assert!(last.is_success(), "{at}: {last:#?}\nfirst: {heard:#?}");
    let made = receipts(harness, return_id);
    assert_eq!(made.len(), 1, "{at}: {made:?} {last:#?}");
    assert_eq!(last.receipts(), [made[0].as_str()], "{at}: {last:#?}");
    heard
}

#[test]
fn a_broken_disk_stops_effects_before_they_are_sent() {
    let soon = soon();
    let harness = &soon.harness;
    let disk = BadDisk::new("ledger.redb", harness.folder());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let return_id = format!("R-{}", 100 + n);
        disk.breaks(fault).unwrap();
        for words in ["too large", "does not fit"] {
            let run = Run::of(&mut on(&disk, harness, &return_id, words)).unwrap();
            no_panic(&run);
            let heard = Heard::of(&run);
            assert_eq!((heard.status(), heard.code), ("refused", Some(3)), "{fault}: {heard:#?}");
            assert_eq!(heard.json["code"], "ledger_unavailable", "{fault}: {heard:#?}");
            assert_eq!(receipts(harness, &return_id), Vec::<String>::new(), "{fault}: {heard:#?}");
        }
        disk.heals().unwrap();
        let heard = hear(&mut on(&disk, harness, &return_id, "well again"));
        assert_eq!(heard.status(), "done", "{fault}: {heard:#?}");
        assert_eq!(receipts(harness, &return_id).len(), 1, "{fault}");
    }
}

/// Starts a refund and breaks the disk when the provider has made it and its answer is on the way.
/// Returns the process, which still runs, and what it said.
fn break_behind_the_send(harness: &Harness, disk: &BadDisk, fault: Fault, return_id: &str) -> (Running, Heard) {
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let running = Running::start(&mut on(disk, harness, return_id, "the disk breaks")).unwrap();
    let started = Instant::now();
    while receipts(harness, return_id).is_empty() {
        assert!(started.elapsed() < LONG, "{fault}: no refund");
        thread::sleep(Duration::from_millis(2));
    }
    disk.breaks(fault).unwrap();
    let mut said = String::new();
    let heard = loop {
        said.push_str(&running.read_line(LONG).unwrap());
        if let Ok(json) = serde_json::from_str(&said) {
            break Heard { json, code: None, stderr: String::new() };
        }
    };
    assert!(disk.was_met(), "{fault}: the disk was not asked");
    assert_eq!(heard.status(), "pending", "{fault}: {heard:#?}");
    (running, heard)
}

/// The process holds the answer, which may be the only copy of a receipt, until it can be stored.
#[test]
fn an_answer_that_cannot_be_stored_is_not_told_and_is_stored_when_the_disk_is_well() {
    let soon = soon();
    let harness = &soon.harness;
    let disk = BadDisk::new("ledger.redb", harness.folder());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let return_id = format!("R-{}", 200 + n);
        let (running, heard) = break_behind_the_send(harness, &disk, fault, &return_id);
        disk.heals().unwrap();
        no_panic(&running.wait(LONG).unwrap());
        lists_down(harness, true);
        let again = call(harness, TOOL, &refund(&return_id, "no lookup can tell it"), &[]);
        lists_down(harness, false);
        let made = receipts(harness, &return_id);
        assert_eq!(made.len(), 1, "{fault}: {heard:#?}");
        again.is_replay_of(&made[0]);
    }
}

/// The process dies with the answer that it could not store: the provider's list tells.
#[test]
fn an_answer_that_was_never_stored_hides_no_effect() {
    let soon = soon();
    let harness = &soon.harness;
    let disk = BadDisk::new("ledger.redb", harness.folder());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let return_id = format!("R-{}", 300 + n);
        let (running, heard) = break_behind_the_send(harness, &disk, fault, &return_id);
        let run = running.kill().unwrap();
        assert!(!run.stderr.contains("panicked"), "{fault}: {}", run.stderr);
        disk.heals().unwrap();
        let (last, _) = restart(harness, &return_id);
        assert!(last.is_success(), "{fault}: {last:#?}\nfirst: {heard:#?}");
        assert_eq!(receipts(harness, &return_id), last.receipts(), "{fault}");
    }
}

/// The process may hold an answer until the disk is well: the disk heals when the process has ended, or
/// after the agent has heard.
fn heal_when_answered(disk: &BadDisk, running: &Running) -> bool {
    let started = Instant::now();
    let stat = format!("/proc/{}/stat", running.pid());
    let runs = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    while runs() && started.elapsed() < ANSWERED {
        thread::sleep(Duration::from_millis(5));
    }
    let was_met = disk.was_met();
    disk.heals().unwrap();
    was_met
}

/// Breaks the disk at each call of one refund in turn; how often which status was heard.
fn break_at_each(fault: Fault, count: u32, from: usize, step: usize) -> (usize, usize) {
    let soon = soon();
    let harness = &soon.harness;
    let disk = BadDisk::new("ledger.redb", harness.folder());
    let (mut met, mut told) = (0, 0);
    for first in (1 + from as u32..CALLS_MAX).step_by(step) {
        let return_id = format!("R-{}", 1000 + first);
        disk.breaks_at(fault, first, count).unwrap();
        let running = Running::start(&mut on(&disk, harness, &return_id, "the disk breaks")).unwrap();
        let was_met = heal_when_answered(&disk, &running);
        let run = running.wait(LONG).unwrap();
        let at = format!("{fault} for {count} calls from call {first} on");
        told += usize::from(ends_with_one(harness, &return_id, &run, &at).is_success());
        if !was_met {
            println!("{fault} at {met} calls: {told} told as done all the same");
            return (met, told);
        }
        met += 1;
    }
    panic!("a refund makes more than {CALLS_MAX} calls");
}

#[test]
fn a_disk_that_breaks_at_any_call_leaves_one_refund() {
    let mut met = 0;
    for (n, fault) in FAULTS.into_iter().enumerate() {
        met += break_at_each(fault, ALL, n, STEP).0;
    }
    assert!(met > 15, "only {met} calls met a fault");
}

/// One call fails, and the disk is well before the program has ended: it opens its ledger again.
#[test]
fn a_disk_that_stumbles_at_any_call_leaves_one_refund() {
    let mut met = 0;
    for (n, fault) in FAULTS.into_iter().enumerate() {
        met += break_at_each(fault, 1, n, STUMBLE_STEP).0;
    }
    assert!(met > 20, "only {met} calls met a fault");
}

/// A file system of a megabyte in memory.
struct Small(TempDir);

impl Small {
    /// None where nobody may mount, which is said.
    fn new(test: &str) -> Option<Small> {
        let small = Small(tempfile::Builder::new().prefix("oncegate-small-").tempdir().unwrap());
        match small.mount("size=1m") {
            Ok(()) => Some(small),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED {test}: no file system can be mounted here: {why}");
                None
            }
        }
    }

    fn mount(&self, options: &str) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(self.0.path()).stdin(Stdio::null());
        let output = mount.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    fn url(&self) -> String {
        format!("redb:{}", self.0.path().join("ledger.redb").display())
    }

    /// Takes all that is left, to the last byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }

    fn call(&self, harness: &Harness, return_id: &str, words: &str) -> Command {
        let mut command = harness.call(TOOL, &refund(return_id, words), &[]);
        command.args(["--ledger", &self.url()]);
        command
    }

    /// On a disk that is well: a ledger with a known object in it.
    fn begin(&self, harness: &Harness) {
        let init = harness.run(&["--ledger", &self.url(), "ledger", "init"]).unwrap();
        assert_eq!(init.code, Some(0), "{init:?}");
        let known = hear(&mut self.call(harness, "R-2", "a known object"));
        assert_eq!(known.status(), "done", "{known:#?}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

/// What is stored can still be read.
#[track_caller]
fn reads_go_on(harness: &Harness, url: &str) {
    let list = harness.run(&["--ledger", url, "--json", "ledger", "list"]).unwrap();
    assert_eq!(list.code, Some(0), "{list:?}");
    assert!(list.stdout.contains("R-2") || list.stdout.contains("done"), "{}", list.stdout);
}

#[test]
fn a_full_disk_stops_effects_until_there_is_space() {
    let Some(small) = Small::new("a_full_disk_stops_effects_until_there_is_space") else { return };
    let soon = soon();
    let harness = &soon.harness;
    small.begin(harness);
    small.fill();
    // The ledger's file has pages to use again: some refunds still find room, until one does not.
    let mut refused = None;
    for n in 0..200 {
        let return_id = format!("R-{}", 4000 + n);
        let run = Run::of(&mut small.call(harness, &return_id, "while it is full")).unwrap();
        no_panic(&run);
        let heard = Heard::of(&run);
        if heard.is_success() {
            assert_eq!(receipts(harness, &return_id), heard.receipts());
            continue;
        }
        refused = Some((return_id, heard));
        break;
    }
    let (return_id, heard) = refused.unwrap();
    let made = receipts(harness, &return_id).len();
    let unavailable = heard.status() == "refused" && heard.json["code"] == "ledger_unavailable";
    assert!(unavailable || (heard.status() == "pending" && made == 1), "{made} made: {heard:#?}");
    reads_go_on(harness, &small.url());
    fs::remove_file(small.filler()).unwrap();
    let mut last = hear(&mut small.call(harness, &return_id, "there is space"));
    if last.status() == "pending" {
        last = hear(&mut small.call(harness, &return_id, "there is space, again"));
    }
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(receipts(harness, &return_id), last.receipts());
}

#[test]
fn a_file_system_for_reading_only_stops_effects_until_it_can_be_written() {
    let Some(small) = Small::new("a_file_system_for_reading_only_stops_effects_until_it_can_be_written") else {
        return;
    };
    let soon = soon();
    let harness = &soon.harness;
    small.begin(harness);
    small.mount("remount,ro").unwrap();
    for return_id in ["R-5", "R-6"] {
        let heard = hear(&mut small.call(harness, return_id, "for reading only"));
        assert_eq!((heard.status(), &heard.json["code"]), ("refused", &json!("ledger_unavailable")), "{heard:#?}");
        assert_eq!(receipts(harness, return_id), Vec::<String>::new());
    }
    reads_go_on(harness, &small.url());
    small.mount("remount,rw").unwrap();
    let heard = hear(&mut small.call(harness, "R-5", "well again"));
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(receipts(harness, "R-5").len(), 1);
}

const RECIPIENTS: usize = 40;

fn emails(harness: &Harness) -> usize {
    harness.provider().count("email").unwrap()
}

fn campaign(harness: &Harness, folder: &Path, words: &str) -> (BadDisk, Command) {
    let recipients: Vec<String> = (0..RECIPIENTS).map(|n| format!("reader{n}@example.com")).collect();
    let arguments = json!({ "subject": words, "body": words, "recipients": recipients });
    let mut command = harness.call("send-campaign", &arguments, &["trigger=spring"]);
    let disk = BadDisk::new("ledger.redb", folder);
    disk.under(&mut command).unwrap();
    (disk, command)
}

/// One process lives through the fault: it stops sending while the disk is broken, and what it or the
/// next one says is true.
#[test]
fn a_campaign_whose_disk_breaks_for_a_while_sends_each_email_once() {
    for fault in FAULTS {
        let harness = crate::agent::with_limits("campaign", "");
        let (disk, mut command) = campaign(&harness, harness.folder(), "while the disk breaks");
        let running = Running::start(&mut command).unwrap();
        let started = Instant::now();
        while emails(&harness) < RECIPIENTS / 4 {
            assert!(started.elapsed() < LONG, "{fault}: {} emails", emails(&harness));
            thread::sleep(Duration::from_millis(1));
        }
        disk.breaks(fault).unwrap();
        while !disk.was_met() && started.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
        // What was dispatched by then may still be sent; after that nothing is.
        thread::sleep(Duration::from_millis(200));
        let stopped_at = emails(&harness);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(emails(&harness), stopped_at, "{fault}: it sends without a ledger");
        disk.heals().unwrap();
        let run = running.wait(LONG).unwrap();
        no_panic(&run);
        let mut heard = Heard::of(&run);
        for _ in 0..4 {
            if heard.is_success() {
                break;
            }
            heard = hear(&mut campaign(&harness, harness.folder(), "well again").1);
        }
        assert!(heard.is_success(), "{fault}: {heard:#?}");
        assert_eq!(emails(&harness), RECIPIENTS, "{fault}");
    }
}
