//! Neighbours of hostile guests: a small tool's calls go on, nobody takes all places, what was cancelled stops, and
//! what hostile guests took is given back.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use oncegate_tests::attack::Attack;
use oncegate_tests::mcp::ANSWER_WITHIN;
use serde_json::{Value, json};

use super::guests::Served;

/// Small calls that are made while others spin.
const SMALL: usize = 20;
/// What the test itself computes, to see whether the server does beside it.
const YARDSTICK: Duration = Duration::from_millis(300);
/// Turns of one component.
const OF_ONE_COMPONENT: usize = 48;
/// Turns of one tenant.
const OF_ONE_TENANT: usize = 56;
/// Kilobytes by which a server may have grown after many hostile calls.
const GROWTH_MAX_KB: u64 = 96 * 1024;

/// The process and all that it has started.
fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// Clock ticks that the process and its children have computed; a tick is 10 ms.
fn ticks(pid: u32) -> u64 {
    let of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
    };
    tree(pid).into_iter().map(of).sum()
}

fn resident_kb(pid: u32) -> u64 {
    let of = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default()
    };
    tree(pid).into_iter().map(of).sum()
}

/// Computes for so long, by this thread's own clock, however busy the machine is.
fn compute(time: Duration) {
    let now = || {
        let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(told.split(' ').next().unwrap().parse().unwrap())
    };
    let until = now() + time;
    while now() < until {
        black_box((0..10_000_u64).fold(0, |sum, n| black_box(sum ^ n)));
    }
}

/// Ticks that the server computes while the test does.
fn beside(pid: u32) -> u64 {
    let before = ticks(pid);
    compute(YARDSTICK);
    // A process that has ended takes its ticks along.
    ticks(pid).saturating_sub(before)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < ANSWER_WITHIN, "not within {ANSWER_WITHIN:?}: {what}");
    }
}

fn answered(served: &Served, ids: &[(i64, usize)]) -> usize {
    let answers = served.client.heard.iter().filter(|message| message.get("method").is_none());
    answers.filter(|message| ids.iter().any(|(id, _)| message["id"] == *id)).count()
}

fn cancel(served: &mut Served, ids: &[(i64, usize)]) {
    for (id, _) in ids {
        let reason = json!({ "requestId": id, "reason": "enough" });
        served.client.notify("notifications/cancelled", &reason).unwrap();
    }
}

fn spinners_slow_nobody(spinners: usize) {
    let attacks = [Attack::named("loop-compute").unwrap()];
    let mut served = Served::start(&attacks, "wall-time = \"10m\"");
    let pid = served.client.pid();
    let spinning: Vec<_> = (0..spinners).map(|_| served.begin("loop-compute")).collect();
    let before = ticks(pid);
    until("the guests spin", || ticks(pid) > before + 50);
    for _ in 0..SMALL {
        served.good();
    }
    assert_eq!(answered(&served, &spinning), 0, "they spun all the time");
    let before = ticks(pid);
    until("they spin still", || ticks(pid) > before + 20);

    cancel(&mut served, &spinning);
    until("nothing is computed for them any more", || beside(pid) <= 3);
    served.good();
    assert_eq!(answered(&served, &spinning), 0, "nobody is told of a call that he cancelled");
}

#[test]
fn two_guests_that_spin_slow_nobody_and_stop_when_they_are_cancelled() {
    spinners_slow_nobody(2);
}

#[test]
fn eight_guests_that_spin_slow_nobody_and_stop_when_they_are_cancelled() {
    spinners_slow_nobody(8);
}

/// Calls that are answered `pending` and keep their turns.
fn sleep(served: &mut Served, name: &str, count: usize) {
    let begun: Vec<_> = (0..count).map(|_| served.begin(name)).collect();
    for (id, _) in begun {
        let told = served.end(id);
        assert_eq!(told["status"], "pending", "{told:#}");
    }
}

fn told(served: &mut Served, name: &str) -> Value {
    let (id, _) = served.begin(name);
    served.end(id)
}

fn is_refused(told: &Value, limit: &str) {
    assert_eq!((&told["code"], &told["limit"]), (&json!("tool_limit"), &json!(limit)), "{told:#}");
    assert_eq!(told["next_action"], "call_again", "{told:#}");
}

#[test]
fn no_component_and_no_tenant_takes_all_places_and_they_come_back() {
    let attacks = ["sleep-for-an-hour", "sleep-on-many"].map(|name| Attack::named(name).unwrap());
    let mut served = Served::start(&attacks, "wall-time = \"30s\"");
    served.answer_within_ms(2_000);
    sleep(&mut served, "sleep-for-an-hour", OF_ONE_COMPONENT);
    is_refused(&told(&mut served, "sleep-for-an-hour"), "calls-of-one-component");
    served.good();
    sleep(&mut served, "sleep-on-many", OF_ONE_TENANT - OF_ONE_COMPONENT);
    is_refused(&told(&mut served, "sleep-on-many"), "calls-of-one-tenant");
    // After their wall time.
    until("the places come back", || told(&mut served, "sleep-for-an-hour")["status"] == "pending");
    served.good();
}

#[test]
fn the_place_of_a_cancelled_call_comes_back() {
    let mut served = Served::start(&[Attack::named("sleep-for-an-hour").unwrap()], "wall-time = \"10m\"");
    let sleeping: Vec<_> = (0..OF_ONE_COMPONENT).map(|_| served.begin("sleep-for-an-hour")).collect();
    served.answer_within_ms(500);
    until("all places are taken", || {
        let told = told(&mut served, "sleep-for-an-hour");
        told["limit"] == "calls-of-one-component"
    });
    cancel(&mut served, &sleeping);
    until("a place comes back", || told(&mut served, "sleep-for-an-hour")["status"] == "pending");
    served.good();
}

#[test]
fn a_thousand_hostile_calls_leave_nothing_behind() {
    let names = [
        "fields-a-million",
        "handles-timers",
        "memory-grow",
        "name-of-five-mebibytes",
        "random-at-once",
        "result-list-of-a-million",
        "result-of-two-megabytes",
        "stack-recursion",
        "table-grow",
        "trap-in-start",
    ];
    let attacks = names.map(|name| Attack::named(name).unwrap());
    let mut served = Served::start(&attacks, "memory = \"32MiB\"");
    let pid = served.client.pid();
    let mut first = 0;
    for round in 0..100 {
        let begun: Vec<_> = names.iter().map(|name| served.begin(name)).collect();
        for (id, _) in begun {
            assert_eq!(served.end(id)["status"], "refused");
        }
        if round == 20 {
            first = resident_kb(pid);
        }
    }
    served.good();
    let last = resident_kb(pid);
    assert!(last < first + GROWTH_MAX_KB, "{first} kB became {last} kB");
}
