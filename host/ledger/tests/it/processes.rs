//! Two processes and one ledger: appends through the socket, a killed owner, a take-over.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::{Append, Event, Expect, Ledger, Role, StreamId, StreamKind, redb::RedbLedger, verify};

use crate::samples::*;

const CHILD: &str = "ONCEGATE_LEDGER_TEST_CHILD";

fn append(who: u8, n: u32) -> Append {
    let mut id = [who; 32];
    id[..4].copy_from_slice(&n.to_be_bytes());
    let mut append = Append::new(StreamId::effect(id), Expect::Version(0), dispatched(1, 0));
    append.state = Some(oncegate_ledger::StateTag::Dispatched);
    append.marks_head = n.is_multiple_of(3);
    append
}

/// To a stream that both processes append to without expecting anything: an append that was asked
/// again must not be there twice.
fn shared(who: u8, n: u32) -> Append {
    let stream = StreamId { kind: StreamKind::Pin, id: [0; 32] };
    Append::new(stream, Expect::Any, Event::Pinned { value: format!("{who}:{n}") })
}

/// Not a test: what the other process does. It appends until it is killed, and says what was acknowledged.
#[test]
#[ignore = "run by the tests below in a process of its own"]
fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let host = Hosts::at(Path::new(&path)).register().unwrap();
        let ledger = RedbLedger::open(Path::new(&path)).unwrap();
        println!("host {}", u128::from_be_bytes(host.id()));
        println!("role {:?}", ledger.identity().role);
        for n in 0.. {
            ledger.append(vec![append(1, n), shared(1, n)]).await.unwrap();
            println!("ack {n}");
        }
    });
}

struct Other {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    acknowledged: u32,
}

impl Other {
    fn start(path: &Path) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--ignored", "--nocapture"])
            .env(CHILD, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Other { process, lines, acknowledged: 0 }
    }

    fn value(&mut self, name: &str) -> String {
        let mut values = self.lines.by_ref().map_while(Result::ok);
        let found = values.find_map(|line| {
            let at = line.find(name)?;
            line[at..].strip_prefix(name).map(|value| value.trim().to_owned())
        });
        found.unwrap_or_else(|| panic!("the other process never said {name}"))
    }

    fn wait_for_acknowledged(&mut self, count: u32) {
        while self.acknowledged < count {
            self.acknowledged = self.value("ack ").parse::<u32>().unwrap() + 1;
        }
    }

    /// SIGKILL; returns how many of its appends were acknowledged at least.
    fn kill(mut self) -> u32 {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let last = self.lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("ack ")?.parse().ok()).last();
        last.map_or(self.acknowledged, |last: u32| last + 1)
    }
}

async fn counts(ledger: &dyn Ledger) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for record in ledger.read(shared(0, 0).stream).await.unwrap() {
        let Event::Pinned { value } = record.event else { panic!() };
        *counts.entry(value).or_insert(0) += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_appends_through_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    let mut other = Other::start(&path);
    assert_eq!(other.value("role "), "Client");
    for n in 0..50 {
        owner.append(vec![append(2, n), shared(2, n)]).await.unwrap();
    }
    other.wait_for_acknowledged(30);
    let acknowledged = other.kill();
    let found = counts(&owner).await;
    assert!(acknowledged >= 30);
    for n in 0..acknowledged {
        assert_eq!(found[&format!("1:{n}")], 1);
        assert_eq!(owner.read(append(1, n).stream).await.unwrap().len(), 1);
    }
    assert!(verify::verify(&owner).await.unwrap().is_sound());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_over_from_a_killed_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    let mut other = Other::start(&path);
    let host = other.value("host ").parse::<u128>().unwrap().to_be_bytes();
    assert_eq!(other.value("role "), "Owner");
    let ledger = Arc::new(RedbLedger::open(&path).unwrap());
    assert_eq!(ledger.identity().role, Role::Client);
    let hosts = Hosts::of(&ledger.identity());
    assert_eq!(hosts.stopped(host), Stopped::No);
    assert_eq!(hosts.stopped([0; 16]), Stopped::NotKnown);

    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (10..18_u8)
        .map(|who| {
            let (ledger, stop) = (Arc::clone(&ledger), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Never an error: the owner's death is survived, and asked again about.
                    assert_eq!(ledger.append(vec![append(who, n), shared(who, n)]).await.unwrap()[0], 1);
                    n += 1;
                }
                (who, n)
            })
        })
        .collect();
    other.wait_for_acknowledged(30);
    let acknowledged = tokio::task::spawn_blocking(move || other.kill()).await.unwrap();
    let taken = std::time::Instant::now();
    while ledger.identity().role != Role::Owner {
        assert!(taken.elapsed().as_secs() < 20, "nobody took over");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    stop.store(true, Ordering::Relaxed);
    assert_eq!(hosts.stopped(host), Stopped::Yes);
    let found = counts(&*ledger).await;
    for n in 0..acknowledged {
        assert_eq!(found[&format!("1:{n}")], 1, "an acknowledged append of the killed owner");
    }
    for caller in callers {
        let (who, count) = caller.await.unwrap();
        let found = counts(&*ledger).await;
        assert!((0..count).all(|n| found[&format!("{who}:{n}")] == 1), "each append exactly once");
    }
    assert!(verify::verify(&*ledger).await.unwrap().is_sound());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_client_takes_over_when_the_owner_closes() {
    let directory = tempfile::tempdir().unwrap();
    // Longer than a socket's address may be.
    let path = directory.path().join("x".repeat(120)).join("l.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    let [first, second] = [RedbLedger::open(&path).unwrap(), RedbLedger::open(&path).unwrap()];
    first.append(vec![shared(1, 1)]).await.unwrap();
    drop(owner);
    for n in 0..20 {
        first.append(vec![shared(2, n)]).await.unwrap();
        second.append(vec![shared(3, n)]).await.unwrap();
    }
    let mut roles = [first.identity().role, second.identity().role];
    roles.sort_by_key(|role| *role == Role::Client);
    assert_eq!(roles, [Role::Owner, Role::Client]);
    assert_eq!(first.read(shared(0, 0).stream).await.unwrap().len(), 41);
}
