//! Whatever standard input and output are, and however slowly a client reads: each message arrives once and whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio as Pipe};
use std::thread;
use std::time::Duration;

use oncegate_tests::harness::Harness;
use rustix::fs::{OFlags, fcntl_getfl};
use serde_json::{Value, json};

use super::{TOOL, command, refunds};
use crate::agent::refund;

/// What a client says from the first word to its one call, and how often it asks for the tools after that.
fn said(lists: u64) -> String {
    let client = json!({ "name": "t", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": TOOL, "arguments": refund("R-1", "broken") });
    let mut messages = vec![
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ];
    messages.extend((3..3 + lists).map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" })));
    messages.iter().map(|message| format!("{message}\n")).collect()
}

/// Each request is answered once, in a line of its own; the refund was made if that was told. At the end of input no
/// effect is begun any more.
#[track_caller]
fn is_whole(harness: &Harness, heard: &str, lists: u64) {
    let answers: Vec<Value> = heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ids: Vec<u64> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..3 + lists).collect::<Vec<_>>());
    let told = answers.iter().find(|answer| answer["id"] == 2).unwrap();
    let refunded = told["result"]["structuredContent"]["status"] == "done";
    assert_eq!(refunds(harness), usize::from(refunded), "{told:#}");
}

fn server(harness: &Harness, stdin: impl Into<Pipe>, stdout: impl Into<Pipe>) -> Child {
    command(harness).stdin(stdin).stdout(stdout).stderr(Pipe::null()).spawn().unwrap()
}

#[test]
fn input_may_be_a_file() {
    let harness = Harness::new("refunds").unwrap();
    let file = harness.home().join("said");
    std::fs::write(&file, said(1)).unwrap();
    let output = server(&harness, File::open(&file).unwrap(), Pipe::piped()).wait_with_output().unwrap();
    assert!(output.status.success());
    is_whole(&harness, &String::from_utf8(output.stdout).unwrap(), 1);
}

#[test]
fn output_may_be_a_file() {
    let harness = Harness::new("refunds").unwrap();
    let file = harness.home().join("heard");
    let mut child = server(&harness, Pipe::piped(), File::create(&file).unwrap());
    child.stdin.take().unwrap().write_all(said(5).as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    is_whole(&harness, &std::fs::read_to_string(file).unwrap(), 5);
}

#[test]
fn both_may_be_sockets() {
    let harness = Harness::new("refunds").unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut child = server(&harness, OwnedFd::from(theirs.try_clone().unwrap()), OwnedFd::from(theirs));
    ours.write_all(said(200).as_bytes()).unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    ours.read_to_string(&mut heard).unwrap();
    assert!(child.wait().unwrap().success());
    is_whole(&harness, &heard, 200);
}

#[test]
fn a_slow_reader_gets_every_line_whole_and_the_ends_keep_their_mode() {
    let harness = Harness::new("refunds").unwrap();
    let (input, mut say) = std::io::pipe().unwrap();
    let (mut hear, output) = std::io::pipe().unwrap();
    let mut child = server(&harness, input.try_clone().unwrap(), output.try_clone().unwrap());
    // Their answers are more than what a pipe holds.
    say.write_all(said(100).as_bytes()).unwrap();
    thread::sleep(Duration::from_secs(1));
    // Others may have these ends too, and would not expect that nothing waits any more.
    for end in [OwnedFd::from(input), OwnedFd::from(output)] {
        assert!(!fcntl_getfl(&end).unwrap().contains(OFlags::NONBLOCK));
    }
    let mut heard = Vec::new();
    let mut piece = [0; 1_000];
    while heard.iter().filter(|byte| **byte == b'\n').count() < 102 {
        let count = hear.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend(&piece[..count]);
    }
    drop(say);
    assert!(child.wait().unwrap().success());
    is_whole(&harness, &String::from_utf8(heard).unwrap(), 100);
}

#[test]
fn a_message_may_come_in_pieces_and_two_in_one() {
    let harness = Harness::new("refunds").unwrap();
    let mut child = server(&harness, Pipe::piped(), Pipe::piped());
    let mut stdin = child.stdin.take().unwrap();
    let said = said(2);
    for piece in said.as_bytes().chunks(37) {
        stdin.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    let mut heard = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    while heard.lines().count() < 4 {
        assert!(stdout.read_line(&mut heard).unwrap() > 0, "{heard}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    is_whole(&harness, &heard, 2);
}
