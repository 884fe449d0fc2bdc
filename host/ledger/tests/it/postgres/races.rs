//! Hosts that want the same key at the same moment.

use std::sync::Arc;

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, StateTag, Stored, StreamId, StreamKind, verify};
use tokio::task::JoinSet;

use super::cluster::{Cluster, Place, SERIALIZABLE};
use crate::samples::*;

/// Keys that are raced for side by side.
const AT_ONCE: usize = 32;
const SLOW_BYTES: usize = 1 << 20;

/// So many hosts, each with connections and markers of its own.
pub(super) async fn hosts(cluster: &Cluster, more: &str, count: usize) -> Vec<(Place, Arc<PostgresLedger>)> {
    let first = cluster.place(more);
    let ledger = PostgresLedger::init(&first.url, 1).await.unwrap();
    let database = first.database.clone();
    let mut hosts = vec![(first, Arc::new(ledger))];
    while hosts.len() < count {
        let place = cluster.host_of(&database, more);
        let refused = PostgresLedger::open(&place.url).await.err();
        assert!(matches!(refused, Some(LedgerError::Behind { .. })), "one without a marker asks: {refused:?}");
        let ledger = PostgresLedger::trust(&place.url, "ann", "a new host", 1).await.unwrap();
        hosts.push((place, Arc::new(ledger)));
    }
    hosts
}

/// One key; returns who won. Its record is the winner's own.
async fn race(hosts: Vec<Arc<PostgresLedger>>, key: [u8; 32]) -> usize {
    let mut racers = JoinSet::new();
    for (n, host) in hosts.iter().cloned().enumerate() {
        racers.spawn(async move {
            let intent = Append::new(StreamId::effect(key), Expect::Version(0), dispatched(n as u8, 0));
            let intent = Append { marks_head: true, state: Some(StateTag::Dispatched), ..intent };
            let mut also = key;
            also[31] ^= 0xff;
            let lookup = StreamId { kind: StreamKind::Lookup, id: also };
            let found = Append::new(lookup, Expect::Any, Event::LookupResolved { effect: key });
            (n, host.append(vec![intent, found]).await)
        });
    }
    let outcomes = racers.join_all().await;
    let winners: Vec<usize> = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(n, _)| *n).collect();
    for (n, outcome) in &outcomes {
        let lost = matches!(outcome, Err(LedgerError::Conflict { found: 1, .. }));
        assert!(lost || winners == [*n], "{n}: {outcome:?}, winners {winners:?}");
    }
    let records = hosts[0].read(StreamId::effect(key)).await.unwrap();
    let [record] = &records[..] else { panic!("{} records", records.len()) };
    let Event::Dispatched(stored) = &record.event else { panic!() };
    assert_eq!(vec![usize::from(stored.attempt[0])], winners, "the record is the winner's");
    winners[0]
}

async fn races(count: usize, rounds: usize, more: &str) {
    let hosts = hosts(Cluster::shared(), more, count).await;
    let ledgers: Vec<Arc<PostgresLedger>> = hosts.iter().map(|(_, ledger)| Arc::clone(ledger)).collect();
    let mut won = vec![0; count];
    let mut running = JoinSet::new();
    for _ in 0..rounds {
        if running.len() == AT_ONCE {
            won[running.join_next().await.unwrap().unwrap()] += 1;
        }
        running.spawn(race(ledgers.clone(), rand::random()));
    }
    running.join_all().await.into_iter().for_each(|winner| won[winner] += 1);
    assert_eq!(won.iter().sum::<usize>(), rounds);
    println!("{count} hosts, {rounds} races {more}: won {won:?}");
    let report = verify::verify(&*ledgers[0]).await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.effects["dispatched"] as usize, rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_of_two_wins_each_race() {
    races(2, 300, "").await;
    races(2, 100, SERIALIZABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_of_eight_wins_each_race() {
    races(8, 100, "").await;
    races(8, 50, SERIALIZABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: cargo test -p oncegate-ledger -- --ignored ten_thousand"]
async fn ten_thousand_races() {
    races(2, 10_000, "").await;
    races(8, 10_000, "").await;
}

/// Something large, so that what is stored with it takes long enough to meet another.
fn slow(own: u8, round: u8) -> Append {
    let document = Stored::Inline(vec![own; SLOW_BYTES]);
    let (plan, actor) = (format!("{own} {round}"), "ann".to_owned());
    let event = Event::PlanFrozen { plan, effects: Vec::new(), document, actor, at: 1, parent: None };
    Append::new(StreamId { kind: StreamKind::Plan, id: [own; 32] }, Expect::Any, event)
}

/// Two hosts each ask that the other's stream is as it was, and write their own: one of them is too late, though
/// neither writes what the other does.
async fn exclude(hosts: &[(Place, Arc<PostgresLedger>)], round: u8, version: u64) {
    let name = |n: u8| StreamId { kind: StreamKind::Claim, id: [round, n].repeat(16).try_into().unwrap() };
    let expect = Expect::Version(version);
    let batch = |own, other| {
        let taken = Event::ClaimTaken { effect: [round; 32], at: 1 };
        vec![Append::guard(name(other), expect), slow(own, round), Append::new(name(own), expect, taken)]
    };
    if version > 0 {
        let there = |n| Append::new(name(n), Expect::Any, Event::ClaimReleased { effect: [round; 32], at: 1 });
        hosts[0].1.append(vec![there(1), there(2)]).await.unwrap();
    }
    let (one, two) = tokio::join!(hosts[0].1.append(batch(1, 2)), hosts[1].1.append(batch(2, 1)));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_exclude_each_other_do_not_both_get_through() {
    for more in ["", SERIALIZABLE] {
        let hosts = hosts(Cluster::shared(), more, 2).await;
        for round in 0..30 {
            exclude(&hosts, round, 0).await;
        }
        for round in 100..120 {
            exclude(&hosts, round, 1).await;
        }
    }
}

/// A balance that every host takes from: never more than there is, and all of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_many_hosts_take_from_is_never_overdrawn() {
    let hosts = hosts(Cluster::shared(), "", 3).await;
    let permit = StreamId { kind: StreamKind::Permit, id: [1; 32] };
    let granted =
        Event::PermitGranted { amount: 60, document: Stored::empty(), actor: "ann".into(), reason: "q".into(), at: 1 };
    hosts[0].1.append(vec![Append::new(permit, Expect::Version(0), granted)]).await.unwrap();
    let mut takers = JoinSet::new();
    for n in 0..90_u8 {
        let host = Arc::clone(&hosts[usize::from(n) % 3].1);
        takers.spawn(async move {
            let take = Event::PermitReserved { effect: [n; 32], amount: 1, at: 1 };
            let left = Expect::Remaining { at_least: 1 };
            let own = Append::new(StreamId::effect([n; 32]), Expect::Version(0), dispatched(n, 0));
            host.append(vec![own, Append::new(permit, left, take)]).await
        });
    }
    let outcomes = takers.join_all().await;
    let refused = outcomes.iter().filter(|one| matches!(one, Err(LedgerError::Condition { .. }))).count();
    assert_eq!((outcomes.iter().filter(|one| one.is_ok()).count(), refused), (60, 30), "{outcomes:?}");
    assert_eq!(hosts[1].1.read(permit).await.unwrap().len(), 61);
}

/// Whoever scans while others write sees every record once, in an order in which each follows its predecessor.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_misses_nothing_that_commits_late() {
    let hosts = hosts(Cluster::shared(), "", 3).await;
    let before = hosts[0].1.scan(0, 1_000).await.unwrap().len();
    let mut writers = JoinSet::new();
    for n in 0..12_u8 {
        let host = Arc::clone(&hosts[usize::from(n) % 3].1);
        writers.spawn(async move {
            for _ in 0..40 {
                // Streams of all hosts, so that each builds on the others' records.
                let shared = StreamId { kind: StreamKind::Lookup, id: [rand::random::<u8>() % 8; 32] };
                host.append(vec![Append::new(shared, Expect::Any, Event::LookupResolved { effect: [n; 32] })])
                    .await
                    .unwrap();
            }
        });
    }
    let (mut seen, mut next, mut heads) = (0, 0, std::collections::HashMap::new());
    loop {
        let over = writers.is_empty();
        let page = hosts[seen % 3].1.scan(next, 50).await.unwrap();
        for record in &page {
            assert!(record.seq >= next && (next == 0 || record.seq == next), "{} after {next}", record.seq);
            next = record.seq + 1;
            let before = heads.insert(record.stream, record.digest);
            assert_eq!(before.unwrap_or_default(), record.previous, "it follows its predecessor");
        }
        seen += page.len();
        if over && page.is_empty() {
            break;
        }
        while let Some(done) = writers.try_join_next() {
            done.unwrap();
        }
    }
    assert_eq!(seen, before + 12 * 40);
}
