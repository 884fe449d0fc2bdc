//! Servers killed, backends ended, connections cut in the middle of appends. What is acknowledged is there; what is
//! refused is not; what is not known is one or the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, StreamId, StreamKind, verify};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::proxy::{self, Cuts};
use super::races::hosts;

type Outcome = Result<Vec<u64>, LedgerError>;

/// What one writer was told, by the value it wrote.
type Told = HashMap<String, (StreamId, Outcome)>;

fn stream(n: u8) -> StreamId {
    StreamId { kind: StreamKind::Pin, id: [n; 32] }
}

/// Writes until it is told to stop: streams of its own, and ones that all write.
async fn write(ledger: Arc<dyn Ledger>, writer: u8, stop: Arc<AtomicBool>) -> Told {
    let mut told = Told::new();
    let mut own = 0;
    for n in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let value = format!("{writer}-{n}");
        let pinned = |stream, expect| Append::new(stream, expect, Event::Pinned { value: value.clone() });
        let shared = stream(n as u8 % 16);
        let (mine, expect) = (stream(100 + writer), Expect::Version(own));
        let outcome = ledger.append(vec![pinned(mine, expect), pinned(shared, Expect::Any)]).await;
        own = match &outcome {
            Ok(versions) => versions[0],
            // Read again, never assumed.
            Err(_) => loop {
                match ledger.read(mine).await {
                    Ok(records) => break records.len() as u64,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            },
        };
        told.insert(value, (shared, outcome));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    told
}

#[derive(Default, Debug)]
struct Score {
    acknowledged: usize,
    unknown_stored: usize,
    unknown_not: usize,
    refused: usize,
}

/// Every value is in both its streams, once, or in none, as its writer was told.
async fn judge(ledger: &dyn Ledger, told: Vec<Told>) -> Score {
    let report = verify::verify(ledger).await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    let mut stored: HashMap<(StreamId, String), usize> = HashMap::new();
    for n in (0..16).chain(100..120) {
        for record in ledger.read(stream(n)).await.unwrap() {
            let Event::Pinned { value } = record.event else { panic!() };
            *stored.entry((record.stream, value)).or_default() += 1;
        }
    }
    let mut score = Score::default();
    for (value, (shared, outcome)) in told.into_iter().flatten() {
        let writer: u8 = value.split_once('-').unwrap().0.parse().unwrap();
        let count = |stream| stored.get(&(stream, value.clone())).copied().unwrap_or_default();
        let (mine, shared) = (count(stream(100 + writer)), count(shared));
        assert_eq!(mine, shared, "{value}: all of it or nothing");
        match (&outcome, mine) {
            (Ok(_), 1) => score.acknowledged += 1,
            (Err(LedgerError::Unavailable { .. }), 1) => score.unknown_stored += 1,
            (Err(LedgerError::Unavailable { .. }), 0) => score.unknown_not += 1,
            (Err(_), 0) => score.refused += 1,
            _ => panic!("{value} was told {outcome:?} and is stored {mine} times"),
        }
    }
    score
}

/// Runs writers on these ledgers while `disturb` does its work.
async fn under(ledgers: &[Arc<dyn Ledger>], disturb: impl Future<Output = ()>) -> Vec<Told> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for n in 0..12_u8 {
        let ledger = Arc::clone(&ledgers[usize::from(n) % ledgers.len()]);
        writers.spawn(write(ledger, n, Arc::clone(&stop)));
    }
    disturb.await;
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await
}

fn as_ledgers(hosts: &[(super::cluster::Place, Arc<PostgresLedger>)]) -> Vec<Arc<dyn Ledger>> {
    hosts.iter().map(|(_, ledger)| Arc::clone(ledger) as Arc<dyn Ledger>).collect()
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_started_again_loses_nothing() {
    let cluster = Cluster::start(&[]);
    let hosts = hosts(&cluster, "", 2).await;
    let ledgers = as_ledgers(&hosts);
    let told = under(&ledgers, async {
        for _ in 0..4 {
            sleep(400).await;
            tokio::task::block_in_place(|| {
                cluster.kill();
                cluster.go();
            });
        }
        sleep(400).await;
    });
    let score = judge(&*hosts[0].1, told.await).await;
    println!("four SIGKILLs of the server: {score:?}");
    assert!(score.acknowledged > 100, "{score:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_that_are_ended_lose_nothing() {
    let hosts = hosts(Cluster::shared(), "", 2).await;
    let database = hosts[0].0.database.clone();
    let ledgers = as_ledgers(&hosts);
    let told = under(&ledgers, async {
        for _ in 0..25 {
            sleep(60).await;
            let end = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'oncegate'"
            );
            tokio::task::block_in_place(|| Cluster::shared().sql("postgres", &end));
        }
        sleep(200).await;
    });
    let score = judge(&*hosts[0].1, told.await).await;
    println!("25 times all backends ended: {score:?}");
    assert!(score.acknowledged > 100, "{score:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_before_or_after_the_answer_lose_nothing() {
    let cuts = Arc::new(Cuts::default());
    let port = proxy::start(Cluster::shared().port, Arc::clone(&cuts)).await;
    let direct = Cluster::shared().place("");
    let judge_of = PostgresLedger::init(&direct.url, 1).await.unwrap();
    let mut ledgers: Vec<Arc<dyn Ledger>> = Vec::new();
    let mut places = Vec::new();
    for _ in 0..2 {
        let place = Cluster::shared().host_at(&direct.database, port, "");
        ledgers.push(Arc::new(PostgresLedger::trust(&place.url, "ann", "new", 1).await.unwrap()));
        places.push(place);
    }
    let told = under(&ledgers, async {
        cuts.one_in.store(12, Ordering::Relaxed);
        sleep(4_000).await;
        cuts.one_in.store(0, Ordering::Relaxed);
    });
    let score = judge(&judge_of, told.await).await;
    let (before, after) = (cuts.before.load(Ordering::Relaxed), cuts.after.load(Ordering::Relaxed));
    println!("cut {before} times before the request, {after} times before the answer: {score:?}");
    assert!(score.acknowledged > 50 && before > 5 && after > 5, "{score:?}");
    assert_eq!((score.unknown_stored, score.unknown_not), (0, 0), "a cut that ends is always found out about");
}

/// The server says success, and in a warning that no standby has it: that is not known to be kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_for_a_standby_is_not_taken_for_a_commit() {
    let cluster = Cluster::start(&[]);
    let place = cluster.place("");
    let ledger = Arc::new(PostgresLedger::init(&place.url, 1).await.unwrap());
    ledger.append(vec![Append::new(stream(1), Expect::Any, Event::Pinned { value: "kept".into() })]).await.unwrap();
    cluster.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    sleep(300).await;
    let append = tokio::spawn({
        let ledger = Arc::clone(&ledger);
        async move { ledger.append(vec![Append::new(stream(2), Expect::Any, Event::Pinned { value: "x".into() })]).await }
    });
    sleep(500).await;
    assert!(!append.is_finished(), "it waits for the standby");
    assert!(ledger.read(stream(2)).await.unwrap().is_empty());
    cluster.sql("postgres", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    let outcome = append.await.unwrap();
    assert!(matches!(&outcome, Err(LedgerError::Unavailable { why }) if why.contains("standby")), "{outcome:?}");
    assert_eq!(ledger.read(stream(2)).await.unwrap().len(), 1, "it is there, and may be forgotten in a failover");
    cluster.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names");
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    sleep(300).await;
    let next =
        ledger.append(vec![Append::new(stream(2), Expect::Version(1), Event::Pinned { value: "y".into() })]).await;
    assert_eq!(next, Ok(vec![2]), "and it goes on");
}
