//! What an operation costs as the ledger grows, in pages that the server touches: a count that no other process on the
//! machine changes, as `EXPLAIN (ANALYZE, BUFFERS)` would show it, summed by `pg_stat_statements` over the very
//! statements that were run. And, for people, effects a second with 1, 3 and 8 hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Event, Expect, Ledger, StateTag, Stored, StreamId};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::cluster::{Cluster, Place};
use super::races::hosts;
use crate::samples::*;

/// How many records the largest ledger has, instead.
const ROWS: &str = "ONCEGATE_SCALE_ROWS";
/// Records of one effect: dispatched, responded, classified.
const RECORDS: u64 = 3;
/// Effects in one append while it is filled.
const FILLED_AT_ONCE: u64 = 250;
/// Operations that a count is the mean of.
const TIMES: u64 = 60;
const LISTED: usize = 10;
/// An answer as providers give it.
const ANSWER_BYTES: usize = 600;
/// Callers of all hosts together, and effects of each.
const CALLERS: u64 = 96;
const EFFECTS_EACH: u64 = 40;

/// A key by its number: spread like any digest.
fn key(number: u64) -> [u8; 32] {
    Sha256::digest(number.to_be_bytes()).into()
}

/// One effect as three appends.
fn effect(number: u64) -> [Append; 3] {
    let key = key(number);
    let attempt = key[0];
    let mut dispatch = dispatch(attempt, 0, false);
    dispatch.lookups = vec![("get-return".into(), key, Stored::Inline(vec![b'l'; 200]))];
    let events = [
        (Event::Dispatched(Box::new(dispatch)), StateTag::Dispatched),
        (responded(attempt, &[b'a'; ANSWER_BYTES]), StateTag::Responded),
        (classified(attempt, done(&format!("re_{number}"))), StateTag::Done),
    ];
    let mut version = 0;
    events.map(|(event, state)| {
        let append = Append::new(StreamId::effect(key), Expect::Version(version), event);
        version += 1;
        Append { state: Some(state), marks_head: version == 1, ..append }
    })
}

async fn fill(ledger: &Arc<PostgresLedger>, from: u64, to: u64) {
    let mut filling = JoinSet::new();
    for first in (from..to).step_by(FILLED_AT_ONCE as usize) {
        let batch: Vec<Append> = (first..to.min(first + FILLED_AT_ONCE)).flat_map(effect).collect();
        let ledger = Arc::clone(ledger);
        filling.spawn(async move { ledger.append(batch).await.unwrap() });
        if filling.len() > 3 {
            filling.join_next().await.unwrap().unwrap();
        }
    }
    filling.join_all().await;
}

/// Pages and bytes of log that the ledger's own statements took since the last question.
struct Meter<'a> {
    cluster: &'a Cluster,
    database: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    pages: f64,
    log_bytes: f64,
}

impl Meter<'_> {
    fn begin(&self) {
        self.cluster.sql(self.database, "SELECT pg_stat_statements_reset()");
    }

    /// Of statements that begin like one of these, divided among so many operations.
    fn taken(&self, of: &[&str], times: u64) -> Taken {
        let likes: Vec<String> = of.iter().map(|begin| format!("query LIKE '{begin}%'")).collect();
        let asked = format!(
            "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0), coalesce(sum(wal_bytes), 0) \
            FROM pg_stat_statements WHERE userid = 'ledger'::regrole AND ({})",
            likes.join(" OR ")
        );
        let line = self.cluster.sql(self.database, &asked);
        let (pages, bytes) = line.split_once('|').unwrap();
        let each = |sum: &str| sum.parse::<f64>().unwrap() / times as f64;
        Taken { pages: each(pages), log_bytes: each(bytes) }
    }
}

const LOOKUP: &[&str] = &["SELECT h.version, h.head"];
const LIST: &[&str] = &["SELECT stream, head FROM oncegate_head"];
const APPEND: &[&str] = &["SELECT stream, version, head FROM oncegate_head", "WITH mine"];
const PLACES: &[&str] = &["SELECT m.next_place", "WITH moved"];
const SCAN: &[&str] = &["SELECT p.seq, p.stream"];
/// All that a host says while it opens the ledger, but for what it says of its connection.
const OPEN: &[&str] = &["SELECT format", "SELECT tick", "WITH taken", "DELETE FROM oncegate", "UPDATE oncegate"];

#[derive(Debug)]
struct Costs {
    /// Records in the ledger; the costs are pages of one operation, but for the last three.
    records: u64,
    lookup: f64,
    list: f64,
    append: f64,
    places: f64,
    scan: f64,
    recovery: f64,
    /// Bytes of log of a lone append.
    log_bytes: f64,
    /// Bytes on the disk, an effect.
    bytes: f64,
    /// Levels of the trees of records, heads and places.
    levels: String,
}

async fn costs(cluster: &Cluster, place: &Place, ledger: &Arc<PostgresLedger>, effects: u64) -> Costs {
    let meter = Meter { cluster, database: &place.database };
    let size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'oncegate%'";
    ledger.scan(u64::MAX >> 2, 1).await.unwrap();
    cluster.sql(&place.database, "VACUUM ANALYZE");
    cluster.sql(&place.database, "CHECKPOINT");
    let bytes = cluster.sql(&place.database, size).parse::<f64>().unwrap() / effects as f64;
    let tree = |name: &str| format!("(SELECT level + 1 FROM bt_metap('oncegate_{name}_pkey'))");
    let levels = format!("SELECT {}, {}, {}", tree("record"), tree("head"), tree("place"));
    let levels = cluster.sql(&place.database, &levels);
    let any = || StreamId::effect(key(rand::random_range(0..effects)));
    meter.begin();
    for _ in 0..TIMES {
        assert_eq!(ledger.read(any()).await.unwrap().len() as u64, RECORDS);
    }
    let lookup = meter.taken(LOOKUP, TIMES).pages;
    meter.begin();
    for _ in 0..TIMES {
        ledger.list(StateTag::Done, Some(any()), LISTED).await.unwrap();
    }
    let list = meter.taken(LIST, TIMES).pages;
    meter.begin();
    for _ in 0..TIMES {
        ledger.scan(rand::random_range(0..effects * RECORDS - 100), 50).await.unwrap();
    }
    let scan = meter.taken(SCAN, TIMES).pages / 50.0;
    meter.begin();
    for number in 0..TIMES {
        for append in effect(u64::MAX - effects * TIMES - number) {
            ledger.append(vec![append]).await.unwrap();
        }
    }
    let appended = meter.taken(APPEND, TIMES * RECORDS);
    ledger.scan(u64::MAX >> 2, 1).await.unwrap();
    meter.begin();
    // All at once: how often hosts give numbers of their own accord depends on the time that passes.
    let many = (0..FILLED_AT_ONCE).flat_map(|number| effect(u64::MAX / 2 - effects * FILLED_AT_ONCE - number));
    ledger.append(many.collect()).await.unwrap();
    ledger.scan(u64::MAX >> 2, 1).await.unwrap();
    let places = meter.taken(PLACES, FILLED_AT_ONCE * RECORDS).pages;
    meter.begin();
    // As a process that starts after another was killed does: its own folder, its own markers.
    drop(PostgresLedger::open(&place.url).await.unwrap());
    let recovery = meter.taken(OPEN, 1).pages;
    let (append, log_bytes) = (appended.pages, appended.log_bytes);
    Costs { records: effects * RECORDS, lookup, list, append, places, scan, recovery, log_bytes, bytes, levels }
}

fn counting() -> Cluster {
    Cluster::start(&[("shared_preload_libraries", "pg_stat_statements"), ("max_wal_size", "512MB")])
}

async fn grown(sizes: &[u64]) -> Vec<Costs> {
    let cluster = counting();
    let place = cluster.place("");
    cluster.sql(&place.database, "CREATE EXTENSION pg_stat_statements; CREATE EXTENSION pageinspect");
    let ledger = Arc::new(PostgresLedger::init(&place.url, 1).await.unwrap());
    let (mut filled, mut all) = (0, Vec::new());
    for records in sizes {
        let effects = records.div_ceil(RECORDS);
        fill(&ledger, filled, effects).await;
        filled = effects;
        all.push(costs(&cluster, &place, &ledger, effects).await);
        show(all.last().unwrap());
    }
    all
}

/// A line of the table of `host/SCALE.md`.
fn show(costs: &Costs) {
    let Costs { records, lookup, list, append, places, scan, recovery, log_bytes, bytes, levels } = costs;
    println!(
        "| {records} | {levels} | {lookup:.1} | {list:.1} | {append:.1} | {places:.1} | {scan:.1} | {recovery:.0} | \
        {bytes:.0} | {log_bytes:.0} |"
    );
}

/// Each operation goes down a few trees; a tree becomes one level deeper when it grows a hundredfold, and its
/// pages are less evenly filled at one size than at another.
fn grows_no_more_than_trees(all: &[Costs]) {
    let (first, last) = (&all[0], all.last().unwrap());
    for (name, small, large, trees) in [
        ("lookup", first.lookup, last.lookup, 6.0),
        // In a larger ledger each of the ten lines lies on a page of its own.
        ("list", first.list, last.list, 4.0 + LISTED as f64),
        ("append", first.append, last.append, 8.0),
        ("places", first.places, last.places, 8.0),
        ("scan", first.scan, last.scan, 3.0),
        ("recovery", first.recovery, last.recovery, 8.0),
    ] {
        assert!(large <= small + trees, "{name}: {large} pages beside {small}; {all:#?}");
    }
    assert!(last.bytes <= first.bytes * 1.2, "{all:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_costs_more_in_a_larger_ledger_than_its_trees_are_deeper() {
    grows_no_more_than_trees(&grown(&[1_500, 15_000]).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes and gigabytes: ONCEGATE_SCALE_ROWS=1000000 cargo test --release -p oncegate-ledger -- --ignored --nocapture scale"]
async fn a_large_one() {
    let rows = std::env::var(ROWS).map_or(1_000_000, |rows| rows.parse().unwrap());
    let mut sizes = vec![10_000];
    while sizes.last().is_some_and(|last| last * 10 <= rows) {
        sizes.push(sizes[sizes.len() - 1] * 10);
    }
    grows_no_more_than_trees(&grown(&sizes).await);
}

/// Effects of two commits each, by so many callers of so many hosts.
async fn speed(cluster: &Cluster, count: usize) {
    let hosts = hosts(cluster, "", count).await;
    let next = Arc::new(AtomicU64::new(1 << 40));
    cluster.sql("postgres", "CHECKPOINT");
    let begun = cluster.sql("postgres", "SELECT pg_current_wal_lsn()");
    let (started, mut callers) = (Instant::now(), JoinSet::new());
    for n in 0..CALLERS {
        let (host, next) = (Arc::clone(&hosts[n as usize % count].1), Arc::clone(&next));
        callers.spawn(async move {
            for _ in 0..EFFECTS_EACH {
                let [dispatched, responded, _] = effect(next.fetch_add(1, Ordering::Relaxed));
                host.append(vec![dispatched]).await.unwrap();
                host.append(vec![responded]).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let (effects, took) = ((CALLERS * EFFECTS_EACH) as f64, started.elapsed().as_secs_f64());
    let bytes = cluster.sql("postgres", &format!("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{begun}')"));
    let each = bytes.parse::<f64>().unwrap() / effects;
    println!("{count} hosts: {:.0} effects/s, {each:.0} bytes of log an effect", effects / took);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: cargo test --release -p oncegate-ledger -- --ignored --nocapture hosts_and_speed"]
async fn hosts_and_speed() {
    let cluster = counting();
    for round in 0..3 {
        println!("round {round}");
        for count in [1, 3, 8] {
            speed(&cluster, count).await;
        }
    }
}
