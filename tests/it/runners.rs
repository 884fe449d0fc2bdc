//! Tools in processes of their own: what an agent hears is the same, and whatever becomes of such a process, effects
//! happen once and are told.

mod compiling;
mod hostile_runner;
mod lost;
mod same;
mod walls;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Options, TENANT};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hostile::guest;

/// The guest that does what it is told, and how long each call of it may take.
fn puppet(limits: &str) -> Harness {
    let limits = format!("answer-within = \"60s\"\n{limits}");
    Harness::with(guest(), Options { limits, ..Options::default() }).unwrap()
}

/// `oncegate serve`, whose tools run in processes of their own by default.
fn command(harness: &Harness) -> Command {
    let mut command = harness.command();
    command.arg("serve").arg(harness.component()).args(["--context", &format!("tenant={TENANT}")]);
    command.env_remove("ONCEGATE_ISOLATION");
    command
}

fn serve(harness: &Harness) -> Stdio {
    Stdio::start(&mut command(harness)).unwrap()
}

fn script(return_id: &str, steps: &Value) -> Value {
    json!({ "return_id": return_id, "script": steps })
}

fn look() -> Value {
    json!({ "fetch": { "operation": "get-return", "fields": [] } })
}

fn refund() -> Value {
    let reason = json!({ "name": "reason", "value": { "text": "too large" } });
    json!({ "perform": { "operation": "create-refund", "fields": [reason] } })
}

/// Begins a call and does not wait.
fn begin(client: &mut Stdio, tool: &str, arguments: &Value) -> i64 {
    client.request("tools/call", &json!({ "name": tool, "arguments": arguments })).unwrap()
}

/// What a call that was begun is told.
fn told(client: &mut Stdio, id: i64) -> Value {
    let answer = client.answer(id, ANSWER_WITHIN * 2).unwrap();
    answer["result"]["structuredContent"].clone()
}

/// The processes that run tools for a host.
fn runners(host: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| is_runner_of(*pid, host)).collect()
}

fn is_runner_of(pid: u32, host: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut words = rest.split(' ');
    let (state, parent) = (words.next(), words.next());
    let named = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"oncegate-runner\0"));
    named && state != Some("Z") && parent == Some(host.to_string().as_str())
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // It may have ended by itself.
    let _ = kill_process(pid, signal);
}

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < ANSWER_WITHIN, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills every process that runs tools for a host until the call has an answer: whatever it is tried in is lost.
fn kill_all_until_told(client: &mut Stdio, id: i64) -> Value {
    let host = client.pid();
    let started = Instant::now();
    loop {
        for pid in runners(host) {
            signal(pid, Signal::KILL);
        }
        if let Ok(answer) = client.answer(id, Duration::from_millis(20)) {
            return answer["result"]["structuredContent"].clone();
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "no answer");
    }
}
