//! The kill shim ends a program exactly where it says.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use oncegate_tests::client::Client;
use oncegate_tests::harness::{Run, Running};
use oncegate_tests::killat::{Call, KillPoint, Signal, log_calls, read_calls};
use oncegate_tests::provider::Provider;
use tempfile::TempDir;

struct Tried {
    run: Run,
    /// What the file holds, up to its first line end.
    first_line: String,
    /// How long the file is.
    written: usize,
    refunds: usize,
}

fn command(folder: &TempDir, provider: &Provider) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_killable"));
    command.arg(folder.path().join("file")).arg(provider.url());
    command
}

fn try_at(point: KillPoint) -> Tried {
    let (folder, provider) = (tempfile::tempdir().unwrap(), Provider::start().unwrap());
    let mut command = command(&folder, &provider);
    point.apply(&mut command).unwrap();
    let run = Run::of(&mut command).unwrap();
    // The provider's thread may still be at work on a request that was sent.
    thread::sleep(Duration::from_millis(100));
    let file = fs::read_to_string(folder.path().join("file")).unwrap_or_default();
    Tried {
        run,
        first_line: file.lines().next().unwrap_or_default().to_owned(),
        written: file.len(),
        refunds: Client::new(&provider.url()).count("refund").unwrap(),
    }
}

#[test]
fn a_program_is_killed_at_the_named_call() {
    // (point, refunds, the answer is in the file)
    let cases = [
        (KillPoint::before(Call::Fdatasync, 1), 0, false),
        (KillPoint::after(Call::Fdatasync, 1), 0, false),
        (KillPoint::before(Call::Connect, 1), 0, false),
        (KillPoint::after(Call::Connect, 1), 0, false),
        (KillPoint::before(Call::Send, 1), 0, false),
        (KillPoint::after(Call::Send, 1), 0, false),
        (KillPoint::before(Call::Send, 2), 0, false),
        (KillPoint::after(Call::Send, 2), 1, false),
        (KillPoint::after(Call::Recv, 1), 1, false),
        (KillPoint::before(Call::Fdatasync, 2), 1, true),
        (KillPoint::after(Call::Fdatasync, 2), 1, true),
        (KillPoint::before(Call::Fsync, 1), 1, true),
        (KillPoint::after(Call::Fsync, 1), 1, true),
    ];
    for (point, refunds, answered) in cases {
        let tried = try_at(point);
        assert!(tried.run.was_killed(), "{point}: {:?}", tried.run);
        assert_eq!(tried.first_line, "intent", "{point}");
        assert_eq!(tried.refunds, refunds, "{point}");
        assert_eq!(tried.written > "intent\n".len(), answered, "{point}");
    }
}

#[test]
fn a_point_that_is_never_reached_changes_nothing() {
    let tried = try_at(KillPoint::before(Call::Fdatasync, 3));
    assert_eq!(tried.run.code, Some(0), "{:?}", tried.run);
    assert_eq!(tried.run.stdout, "done\n");
    assert_eq!(tried.refunds, 1);
}

#[test]
fn calls_are_logged_in_order() {
    let (folder, provider) = (tempfile::tempdir().unwrap(), Provider::start().unwrap());
    let log = folder.path().join("calls");
    let mut command = command(&folder, &provider);
    log_calls(&mut command, &log).unwrap();
    assert_eq!(Run::of(&mut command).unwrap().code, Some(0));
    let calls = read_calls(&log).unwrap();
    let words: Vec<&str> = calls.iter().map(|seen| seen.call.as_str()).collect();
    let start = ["fdatasync", "connect", "send", "send", "recv"];
    assert_eq!(words[..5], start, "{calls:?}");
    assert_eq!(words[words.len() - 2..], ["fdatasync", "fsync"]);
    assert!(calls[0].what.ends_with("/file"), "{calls:?}");
}

#[test]
fn a_stopped_program_goes_on_after_it_is_woken() {
    let (folder, provider) = (tempfile::tempdir().unwrap(), Provider::start().unwrap());
    let mut command = command(&folder, &provider);
    let point = KillPoint { signal: Signal::Stop, ..KillPoint::before(Call::Send, 2) };
    point.apply(&mut command).unwrap();
    let running = Running::start(&mut command).unwrap();
    thread::sleep(Duration::from_millis(300));
    let client = Client::new(&provider.url());
    assert_eq!(client.count("refund").unwrap(), 0);
    let pid = running.pid().to_string();
    let woken = Command::new("kill").args(["-CONT", &pid]).status();
    assert!(woken.unwrap().success());
    let run = running.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(run.stdout, "done\n", "{run:?}");
    assert_eq!(client.count("refund").unwrap(), 1);
}
