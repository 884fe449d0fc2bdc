//! What is derived from the records is what was stored: heads and lists, of the owner and of others, before and
//! after they are written to their tables; a ledger of the format before; the marker behind the commits.

use std::path::Path;
use std::sync::Arc;

use super::index::TAIL_RECORDS_MAX;
use super::marker::{self, Marker};
use super::reads::{BY_STATE, HEADS, META, RECORDS, listing};
use super::store::{Op, Place, Store};
use super::{FORMAT, RedbLedger};
use crate::commit::Head;
use crate::memory::MemoryLedger;
use crate::record::{self, Row};
use crate::samples::*;
use crate::{Append, Effects, Event, Expect, Ledger, LedgerError, StateTag, StreamId, StreamKind, effects, sha256};

fn key(n: u32) -> [u8; 32] {
    sha256(&n.to_be_bytes())
}

/// The appends of the first events of an effect, and of another stream that is listed as done.
fn life(n: u32, steps: u32) -> Vec<Append> {
    let pin = StreamId { kind: StreamKind::Pin, id: key(n) };
    let mut pinned = Append::new(pin, Expect::Version(0), Event::Pinned { value: n.to_string() });
    pinned.state = Some(StateTag::Done);
    let outcome = if n.is_multiple_of(3) { refused() } else { done("re_1") };
    let events = [dispatched(1, 0), responded(1, &[b'a'; 50]), classified(1, outcome)];
    let mut row = None;
    let mut appends = vec![pinned];
    for event in events.into_iter().take(steps as usize) {
        let (append, after) = effects::step(key(n), row.as_ref(), event).unwrap();
        appends.push(append);
        row = Some(after);
    }
    appends
}

/// Every list, in pages that are not whole.
async fn lists(ledger: &dyn Ledger) -> Vec<(StateTag, Vec<StreamId>)> {
    let mut all = Vec::new();
    for state in StateTag::ALL {
        let mut streams: Vec<StreamId> = Vec::new();
        loop {
            let page = ledger.list(state, streams.last().copied(), 37).await.unwrap();
            if page.is_empty() {
                break;
            }
            streams.extend(page);
        }
        all.push((state, streams));
    }
    all
}

async fn compare(one: &dyn Ledger, truth: &dyn Ledger, effects: std::ops::Range<u32>) {
    assert_eq!(lists(one).await, lists(truth).await);
    for n in effects.step_by(97) {
        for stream in [StreamId::effect(key(n)), StreamId { kind: StreamKind::Pin, id: key(n) }] {
            let digests = |records: Vec<crate::Record>| records.iter().map(|r| r.digest).collect::<Vec<_>>();
            assert_eq!(digests(one.read(stream).await.unwrap()), digests(truth.read(stream).await.unwrap()));
        }
    }
}

#[tokio::test]
async fn heads_and_lists_are_those_of_the_records_wherever_they_are_kept() {
    const EFFECTS: u32 = 3_000;
    const STEP: u32 = 150;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let (ledger, truth) = (RedbLedger::init(&path, 1).unwrap(), MemoryLedger::new());
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    for from in (0..EFFECTS).step_by(STEP as usize) {
        // Some go their whole way in one commit, some stop on it, some go on much later.
        let mut batch: Vec<Append> = (from..from + STEP).flat_map(|n| life(n, n % 4)).collect();
        let later = |n: u32| life(n, 3).into_iter().skip(1 + (n % 4) as usize);
        batch.extend((from.saturating_sub(20 * STEP)..from.saturating_sub(19 * STEP)).flat_map(later));
        ledger.append(batch.clone()).await.unwrap();
        truth.append(batch).await.unwrap();
        // The tables follow what the marker durably names: within some 50 ms, here at once.
        ledger.marked_durably();
        if from % (STEP * 5) == 0 {
            compare(&ledger, &truth, 0..from).await;
            compare(&reader, &truth, 0..from).await;
        }
    }
    compare(&ledger, &truth, 0..EFFECTS).await;
    drop(ledger);
    let store = Store::open(&Place::file(&path)).unwrap();
    assert!(store.known.indexed > 0 && store.known.last.0 - store.known.indexed <= TAIL_RECORDS_MAX);
    drop(store);
    compare(&RedbLedger::open(&path).unwrap(), &truth, 0..EFFECTS).await;
    compare(&RedbLedger::open_for_reading(&path).unwrap(), &truth, 0..EFFECTS).await;
}

/// A record as the format before had it: a guard behind the event, nothing of the head.
fn encode_before(row: &Row) -> Vec<u8> {
    let mut to = vec![1];
    to.extend(row.seq.to_be_bytes());
    to.extend(row.previous_seq.to_be_bytes());
    to.extend(row.stream.to_bytes());
    to.extend(row.version.to_be_bytes());
    to.extend(row.previous);
    to.extend(row.digest);
    to.extend([0, 0, 0]);
    to.extend((row.event.len() as u64).to_be_bytes());
    to.extend(&row.event);
    let end = record::guard(&to);
    to.extend(end);
    to
}

/// Turns a closed ledger into what the format before would have stored.
fn turn_back(path: &Path) {
    let database = redb::Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut records = transaction.open_table(RECORDS).unwrap();
        let mut heads = transaction.open_table(HEADS).unwrap();
        let mut by_state = transaction.open_table(BY_STATE).unwrap();
        let mut meta = transaction.open_table(META).unwrap();
        let last = redb::ReadableTable::last(&records).unwrap().unwrap().0.value();
        let mut states = std::collections::BTreeMap::new();
        for seq in 1..=last {
            let row = Row::decode(seq, redb::ReadableTable::get(&records, seq).unwrap().unwrap().value()).unwrap();
            records.insert(seq, encode_before(&row).as_slice()).unwrap();
            let Row { version, digest, state, balance, .. } = row;
            let head = Head { version, seq, digest, state, balance };
            heads.insert(row.stream.to_bytes().as_slice(), head.encode().as_slice()).unwrap();
            states.insert(row.stream, state);
        }
        for (stream, state) in states.into_iter().filter_map(|(stream, state)| Some((stream, state?))) {
            let key = listing(state, stream);
            by_state.insert(key.as_slice(), record::guard(&key).as_slice()).unwrap();
        }
        meta.remove("known").unwrap();
        let mut format = 1_u32.to_be_bytes().to_vec();
        let end = record::guard(&format);
        format.extend(end);
        meta.insert("format", format.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_ledger_of_the_format_before_is_read_and_brought_up_to_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let (ledger, truth) = (RedbLedger::init(&path, 1).unwrap(), MemoryLedger::new());
    let batch: Vec<Append> = (0..60).flat_map(|n| life(n, n % 4)).collect();
    ledger.append(batch.clone()).await.unwrap();
    truth.append(batch).await.unwrap();
    drop(ledger);
    turn_back(&path);
    compare(&RedbLedger::open_for_reading(&path).unwrap(), &truth, 0..60).await;
    let ledger = RedbLedger::open(&path).unwrap();
    assert_eq!(ledger.identity().format, FORMAT);
    compare(&ledger, &truth, 0..60).await;
    let later: Vec<Append> = (0..60).flat_map(|n| life(n, 3).into_iter().skip(1 + (n % 4) as usize)).collect();
    ledger.append(later.clone()).await.unwrap();
    truth.append(later).await.unwrap();
    compare(&ledger, &truth, 0..60).await;
    drop(ledger);
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    compare(&reader, &truth, 0..60).await;
    let problems = crate::verify::verify(&reader).await.unwrap().problems;
    assert!(
        problems.iter().all(|problem| problem.what.starts_with("the list of done")),
        "pins are no effects: {problems:#?}"
    );
}

#[tokio::test]
async fn marked_returns_when_the_marker_names_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let ledger = Arc::new(RedbLedger::init(&path, 1).unwrap());
    let effects = Effects::new(Arc::<RedbLedger>::clone(&ledger) as _);
    for n in 0..100 {
        effects.advance(key(n), None, dispatched(1, 0), Vec::new()).await.unwrap();
        ledger.marked().await.unwrap();
        let mark = Marker::open(&marker::path(&path)).unwrap().1.unwrap();
        assert_eq!(mark.digest, ledger.read(StreamId::effect(key(n))).await.unwrap()[0].digest);
    }
    let older = std::fs::read(&path).unwrap();
    effects.advance(key(100), None, dispatched(1, 0), Vec::new()).await.unwrap();
    ledger.marked().await.unwrap();
    drop((ledger, effects));
    std::fs::write(&path, older).unwrap();
    assert!(matches!(RedbLedger::open(&path).err(), Some(LedgerError::Behind { .. })));
}

#[tokio::test]
async fn a_client_hears_of_the_mark_from_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    let client = Arc::new(RedbLedger::open(&path).unwrap());
    assert_eq!(client.identity().role, crate::Role::Client);
    let effects = Effects::new(Arc::<RedbLedger>::clone(&client) as _);
    for n in 0..50 {
        effects.advance(key(n), None, dispatched(1, 0), Vec::new()).await.unwrap();
        client.marked().await.unwrap();
        let mark = Marker::open(&marker::path(&path)).unwrap().1.unwrap();
        assert_eq!(mark.digest, owner.read(StreamId::effect(key(n))).await.unwrap()[0].digest);
    }
    assert!(RedbLedger::open_for_reading(&path).unwrap().marked().await.is_err(), "a reader sends nothing");
}

/// The owner ended between the commit and the marker; whoever opens it next owes the mark, and those who were
/// told of the commit wait for it there.
#[test]
fn what_the_last_owner_did_not_mark_is_marked_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    let (older, before) = (std::fs::read(&path).unwrap(), std::fs::read(marker::path(&path)).unwrap());
    let mut store = Store::open(&Place::file(&path)).unwrap();
    let append = effects::step(key(1), None, dispatched(1, 0)).unwrap().0;
    let also = Append::new(StreamId::ledger(), Expect::Any, Event::HostStarted { host: [1; 16], at: 1 });
    store.commit(&[Op::new(vec![append], None, false).unwrap()]).unwrap()[0].clone().unwrap();
    let dispatched_at = store.known.last;
    store.commit(&[Op::new(vec![also], None, false).unwrap()]).unwrap()[0].clone().unwrap();
    drop(store);
    std::fs::write(marker::path(&path), before).unwrap();
    let store = Store::open(&Place::file(&path)).unwrap();
    store.marks().wait().unwrap();
    let mark = Marker::open(&marker::path(&path)).unwrap().1.unwrap();
    assert_eq!((mark.seq, mark.digest), dispatched_at);
    drop(store);
    std::fs::write(&path, older).unwrap();
    assert!(matches!(RedbLedger::open(&path).err(), Some(LedgerError::Behind { .. })));
}

#[tokio::test]
async fn an_unhurried_append_keeps_its_order_and_is_not_dropped_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let ledger = Arc::new(RedbLedger::init(&path, 1).unwrap());
    let [first, second, third] = [0, 1, 2].map(|at| vec![life(1, 3).swap_remove(1 + at)]);
    ledger.append(first).await.unwrap();
    // Each expects the version before it.
    let (unhurried, later) = tokio::join!(ledger.append_unhurried(second), ledger.append(third));
    assert_eq!((unhurried.unwrap(), later.unwrap()), (vec![2], vec![3]));
    let left = vec![life(2, 1).swap_remove(1)];
    let mut pending = Box::pin(ledger.append_unhurried(left));
    assert!(std::future::poll_fn(|context| std::task::Poll::Ready(pending.as_mut().poll(context))).await.is_pending());
    drop(pending);
    drop(ledger);
    let ledger = RedbLedger::open(&path).unwrap();
    assert_eq!(ledger.read(StreamId::effect(key(2))).await.unwrap().len(), 1);
}
