//! The disk stopped at every sync of several effects' lives, and what an open finds afterwards.
//!
//! Goal: an effect is absent, in doubt, or done; no acknowledged append is lost; the ledger opens and is
//! not behind its marker. Method: redb writes to a simulated disk that keeps what was synced apart from
//! what was not; after the stop images are made of the two, with every subset of few writes, torn ones
//! and reordered ones; some of them stop again while they are recovered. A disk that lies about syncs
//! must be caught by the same checks, or they check nothing. Segments and marker are real files here;
//! that they are synced in time is shown from outside, by recorded writes and by power cuts.

mod disk;
mod forgetting;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use disk::{Disk, Image, Kind, Simulated};
use rand::{SeedableRng, rngs::SmallRng};
use redb::{ConcurrencyMode, Database};

use super::committer::Hurry;
use super::marker::Marker;
use super::segments::Segments;
use super::store::{Op, Place, Store, write_first};
use crate::samples::*;
use crate::{Append, Effect, Event, Expect, LedgerError, StreamId, effects, sha256};

const SEED: u64 = 11;
const EFFECTS: u8 = 4;
const LIFE: usize = 3;

fn place(disk: &Arc<Mutex<Disk>>, directory: &std::path::Path) -> Place {
    let disk = Arc::clone(disk);
    Place {
        open: Box::new(move || {
            Database::builder()
                .set_concurrency_mode(ConcurrencyMode::ExclusiveWriter)
                .set_check_integrity_on_open(true)
                .set_cache_size(4 * 1024 * 1024)
                .create_with_backend(Simulated(Arc::clone(&disk)))
        }),
        at: "simulated".to_owned(),
        file: None,
        segments: Segments::at(directory.join("segments")),
        marker: directory.join("head"),
    }
}

/// A created ledger, as an image; its marker is in the directory.
fn created(directory: &std::path::Path) -> Vec<u8> {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let database = Database::builder().create_with_backend(Simulated(Arc::clone(&disk))).unwrap();
    let mark = write_first(&database, [3; 16], 1).unwrap();
    database.close().unwrap();
    Marker::create(&directory.join("head"), mark).unwrap();
    let disk = disk.lock().unwrap();
    disk.durable.clone()
}

/// The events of each effect's life; one answer is large and goes to a segment.
fn life(key: u8) -> [Event; LIFE] {
    let length = if key == 1 { 40_000 } else { 300 };
    [dispatched(1, 0), responded(1, &vec![key; length]), classified(1, done("re_1"))]
}

fn op(append: Append) -> Op {
    Op::new(batch(append), None, false).unwrap()
}

fn batch(append: Append) -> Vec<Append> {
    let key = append.stream.id[0];
    let lookup = StreamId { kind: crate::StreamKind::Lookup, id: [key; 32] };
    let also = Append::new(lookup, Expect::Any, Event::LookupResolved { effect: [key; 32] });
    vec![append, also]
}

/// Lives every effect, two in each commit; returns how far each was acknowledged.
fn live(store: &mut Store) -> [usize; EFFECTS as usize] {
    let mut acknowledged = [0; EFFECTS as usize];
    let mut rows: [Option<Effect>; EFFECTS as usize] = Default::default();
    for pair in [[0, 1], [2, 3]] {
        for step in 0..LIFE {
            let mut ops = Vec::new();
            let mut after = Vec::new();
            for key in pair {
                let event = life(key)[step].clone();
                let (append, row) = effects::step([key; 32], rows[usize::from(key)].as_ref(), event).unwrap();
                ops.push(op(append));
                after.push((usize::from(key), row));
            }
            let Ok(outcomes) = store.commit(&ops) else {
                return acknowledged;
            };
            for ((key, row), outcome) in after.into_iter().zip(outcomes) {
                outcome.unwrap();
                rows[key] = Some(row);
                acknowledged[key] = step + 1;
            }
        }
    }
    acknowledged
}

/// What an open after the stop finds wrong.
fn examine(place: &Place, acknowledged: &[usize; EFFECTS as usize]) -> Result<(), String> {
    let store = Store::open(place).map_err(|error| format!("it does not open: {error}"))?;
    let reads = super::reads::Reads::new(store.database(), place.segments.clone());
    for key in 0..EFFECTS {
        let read = |stream| match reads.answer(&super::protocol::Request::Read { stream }) {
            Ok(super::protocol::Reply::Records(records)) => Ok(records),
            other => Err(format!("it does not read: {other:?}")),
        };
        let records = read(StreamId::effect([key; 32]))?;
        if records.len() < acknowledged[usize::from(key)] {
            return Err(format!("effect {key} lost an acknowledged append"));
        }
        let lookup = StreamId { kind: crate::StreamKind::Lookup, id: [key; 32] };
        if read(lookup)?.len() != records.len() {
            return Err(format!("effect {key}: half of a batch"));
        }
        let row = effects::fold_records(&records).map_err(|error| error.to_string())?;
        for (record, lived) in records.iter().zip(life(key)) {
            let mut event = record.event.clone();
            for bytes in event.stored_mut() {
                match reads.answer(&super::protocol::Request::Load { bytes: bytes.clone() }) {
                    Ok(super::protocol::Reply::Bytes(loaded)) => *bytes = crate::Stored::Inline(loaded),
                    other => return Err(format!("bytes are lost: {other:?}")),
                }
            }
            if event != lived {
                return Err(format!("effect {key} has another history"));
            }
        }
        use crate::StateTag::{Dispatched, Done, Responded};
        let possible = [None, Some(Dispatched), Some(Responded), Some(Done)];
        if row.map(|row| row.state) != possible[records.len()] {
            return Err(format!("effect {key} is in another state"));
        }
    }
    Ok(())
}

/// What the images of many stops showed.
#[derive(Default)]
struct Found {
    images: BTreeMap<Kind, usize>,
    wrong: BTreeMap<Kind, Vec<String>>,
    stops: u32,
    stops_in_recovery: u32,
}

impl Found {
    fn look(&mut self, stop: &Stop, image: &Image, disk: &Arc<Mutex<Disk>>) {
        *self.images.entry(image.kind).or_default() += 1;
        let at = place(disk, stop.directory.path());
        stop.put_marker_back();
        if let Err(why) = examine(&at, &stop.acknowledged) {
            let why = format!("seed {SEED}, stopped at sync {}, {}: {why}", stop.at, image.what);
            self.wrong.entry(image.kind).or_default().push(why);
        }
    }

    fn all(&self) -> usize {
        self.images.values().sum()
    }

    #[track_caller]
    fn nothing_wrong(&self) {
        println!("seed {SEED}: {} stops, {} in recovery, images {:?}", self.stops, self.stops_in_recovery, self.images);
        let wrong: Vec<&String> = self.wrong.values().flatten().collect();
        assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), self.all(), &wrong[..wrong.len().min(5)]);
    }

    /// A quarter of what each way to lose writes makes of a disk that lied must be seen to be wrong.
    #[track_caller]
    fn caught(&self) {
        for (kind, images) in &self.images {
            let wrong = self.wrong.get(kind).map_or(0, Vec::len);
            println!("{kind:?}: {wrong} of {images} images of a lying disk caught");
            assert!(wrong * 4 >= *images, "{kind:?}: the checks check something: {wrong} of {images}");
        }
    }
}

/// A life that ended when its disk stopped.
struct Stop {
    at: u32,
    directory: tempfile::TempDir,
    marker: Vec<u8>,
    acknowledged: [usize; EFFECTS as usize],
    disk: Disk,
}

impl Stop {
    fn at(stop_at: u32, lies: bool) -> Stop {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
        {
            let mut locked = disk.lock().unwrap();
            (locked.stop_at, locked.lies) = (Some(stop_at), lies);
        }
        let mut acknowledged = [0; EFFECTS as usize];
        if let Ok(mut store) = Store::open(&place(&disk, directory.path())) {
            acknowledged = live(&mut store);
        }
        let marker = std::fs::read(directory.path().join("head")).unwrap();
        let disk = std::mem::take(&mut *disk.lock().unwrap());
        Stop { at: stop_at, directory, marker, acknowledged, disk }
    }

    fn put_marker_back(&self) {
        std::fs::write(self.directory.path().join("head"), &self.marker).unwrap();
    }
}

/// Stops at every sync and examines every image of what lay between it and the sync before.
fn stop_everywhere(lies: bool) -> Found {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut found = Found::default();
    for stop_at in 1.. {
        let stop = Stop::at(stop_at, lies);
        for image in stop.disk.images(&mut random) {
            found.look(&stop, &image, &Arc::new(Mutex::new(Disk::from(image.bytes.clone()))));
        }
        found.stops += 1;
        if !stop.disk.stopped {
            return found;
        }
    }
    unreachable!()
}

/// Stops at every sync; what is left stops again at every sync of the recovery.
fn stop_in_recovery(lies: bool) -> Found {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut found = Found::default();
    for stop_at in 1.. {
        let stop = Stop::at(stop_at, lies);
        for image in stop.disk.some_images(&mut random) {
            for second in 1.. {
                let disk = Arc::new(Mutex::new(Disk::from(image.bytes.clone())));
                {
                    let mut locked = disk.lock().unwrap();
                    (locked.stop_at, locked.lies) = (Some(second), lies);
                }
                stop.put_marker_back();
                drop(Store::open(&place(&disk, stop.directory.path())));
                let recovered = std::mem::take(&mut *disk.lock().unwrap());
                for mut again in recovered.some_images(&mut random) {
                    again.what = format!("{}, again at sync {second} of recovery, {}", image.what, again.what);
                    found.look(&stop, &again, &Arc::new(Mutex::new(Disk::from(again.bytes.clone()))));
                }
                found.stops_in_recovery += u32::from(recovered.stopped);
                if !recovered.stopped {
                    break;
                }
            }
        }
        found.stops += 1;
        if !stop.disk.stopped {
            return found;
        }
    }
    unreachable!()
}

#[test]
fn torn_lost_and_reordered_writes_between_any_two_syncs_lose_nothing() {
    let found = stop_everywhere(false);
    found.nothing_wrong();
    assert!(found.stops > 15 && found.all() > 1_000, "{} stops, {} images", found.stops, found.all());
    assert_eq!(found.images.len(), Kind::ALL.len(), "{:?}", found.images);
}

#[test]
fn a_disk_that_lies_is_caught() {
    stop_everywhere(true).caught();
}

#[test]
fn a_second_crash_during_recovery_loses_nothing() {
    let found = stop_in_recovery(false);
    found.nothing_wrong();
    assert!(found.stops_in_recovery > 50 && found.all() > 300, "{} images", found.all());
}

#[test]
fn a_disk_that_lies_is_caught_after_a_second_crash() {
    stop_in_recovery(true).caught();
}

/// What an open finds after it was stopped while records before two tombstones were removed: each
/// stream is whole or begins with its tombstone, and nothing else is gone.
fn examine_forgotten(place: &Place) -> Result<(), String> {
    let store = Store::open(place).map_err(|error| format!("it does not open: {error}"))?;
    let reads = super::reads::Reads::new(store.database(), place.segments.clone());
    for key in 0..EFFECTS {
        let request = super::protocol::Request::Read { stream: StreamId::effect([key; 32]) };
        let Ok(super::protocol::Reply::Records(records)) = reads.answer(&request) else {
            return Err(format!("effect {key} cannot be read"));
        };
        let possible: &[usize] = if key < 2 { &[1, LIFE + 1] } else { &[LIFE] };
        let row = effects::fold_records(&records).map_err(|error| error.to_string())?;
        let receipt = row.and_then(|row| row.receipt);
        if !possible.contains(&records.len()) || receipt.as_deref() != Some("re_1") {
            return Err(format!("effect {key} has {} records and the receipt {receipt:?}", records.len()));
        }
    }
    Ok(())
}

/// Lives all effects, writes two tombstones, and stops at that sync of the removal behind them.
fn stop_while_forgetting(stop_at: u32, random: &mut SmallRng, wrong: &mut Vec<String>) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let mut store = Store::open(&place(&disk, directory.path())).unwrap();
    assert_eq!(live(&mut store), [LIFE; EFFECTS as usize]);
    for key in 0..2 {
        let row = crate::state::fold(life(key).iter()).unwrap().unwrap();
        let tombstone = Event::Pruned(Box::new(row.to_tombstone(5_000).unwrap()));
        let append = effects::step([key; 32], Some(&row), tombstone).unwrap().0;
        store.commit(&[Op::new(vec![append], None, false).unwrap()]).unwrap()[0].clone().unwrap();
    }
    {
        let mut disk = disk.lock().unwrap();
        disk.stop_at = Some(disk.syncs + stop_at);
    }
    let forgotten = store.forget(&[0, 1].map(|key| StreamId::effect([key; 32])));
    drop(store);
    let disk = std::mem::take(&mut *disk.lock().unwrap());
    assert!(disk.stopped || forgotten.is_ok_and(|forgot| forgot.records == 2 * LIFE as u64));
    let marker = std::fs::read(directory.path().join("head")).unwrap();
    for image in disk.images(random) {
        std::fs::write(directory.path().join("head"), &marker).unwrap();
        let left = Arc::new(Mutex::new(Disk::from(image.bytes)));
        if let Err(why) = examine_forgotten(&place(&left, directory.path())) {
            wrong.push(format!("stopped at sync {stop_at} of forgetting, {}: {why}", image.what));
        }
    }
    disk.stopped
}

#[test]
fn a_stop_while_records_are_removed_loses_nothing_else() {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut wrong = Vec::new();
    let stops = (1..).take_while(|stop_at| stop_while_forgetting(*stop_at, &mut random, &mut wrong)).count();
    assert!(wrong.is_empty(), "{}: {:#?}", wrong.len(), wrong.first());
    assert!(stops >= 2, "forgetting was stopped {stops} times");
}

#[test]
fn a_failed_commit_is_unknown_and_the_next_incarnation_reads_the_truth() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let at = place(&disk, directory.path());
    let store = Store::open(&at).unwrap();
    let reads = Arc::new(super::reads::Reads::of(store.opened(), at.segments.clone()));
    let incarnation = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (queue, thread) = super::committer::start(store, at, Arc::clone(&reads), Arc::clone(&incarnation)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dispatch = |key: u8| batch(effects::step([key; 32], None, dispatched(1, 0)).unwrap().0);
    runtime.block_on(queue.append(dispatch(1), Hurry::Now)).unwrap();
    {
        let mut disk = disk.lock().unwrap();
        disk.stop_at = Some(disk.syncs + 1);
    }
    let failed = runtime.block_on(queue.append(dispatch(2), Hurry::Now));
    assert!(matches!(failed, Err(LedgerError::Unavailable { .. })), "{failed:?}");
    // Nothing is assumed while it cannot be opened.
    let read = || reads.answer(&super::protocol::Request::Read { stream: StreamId::effect([1; 32]) });
    assert!(matches!(read(), Err(LedgerError::Unavailable { .. })));
    {
        let mut disk = disk.lock().unwrap();
        (disk.stop_at, disk.stopped) = (None, false);
    }
    std::thread::sleep(std::time::Duration::from_millis(600));
    runtime.block_on(queue.append(dispatch(3), Hurry::Now)).unwrap();
    assert!(matches!(read(), Ok(super::protocol::Reply::Records(records)) if records.len() == 1));
    assert_eq!(incarnation.load(std::sync::atomic::Ordering::Relaxed), 1);
    queue.stop();
    thread.join().unwrap();
}

/// Whoever holds an answer in memory reads its row before it stores it: a ledger that opened again only
/// when something was appended would stay closed for ever.
#[test]
fn a_ledger_that_a_failure_closed_opens_again_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let at = place(&disk, directory.path());
    let store = Store::open(&at).unwrap();
    let reads = Arc::new(super::reads::Reads::of(store.opened(), at.segments.clone()));
    let (queue, thread) = super::committer::start(store, at, Arc::clone(&reads), Arc::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dispatch = |key: u8| batch(effects::step([key; 32], None, dispatched(1, 0)).unwrap().0);
    {
        let mut disk = disk.lock().unwrap();
        disk.stop_at = Some(disk.syncs + 1);
    }
    assert!(runtime.block_on(queue.append(dispatch(1), Hurry::Now)).is_err());
    let read = || reads.answer(&super::protocol::Request::Read { stream: StreamId::effect([1; 32]) });
    assert!(matches!(read(), Err(LedgerError::Unavailable { .. })));
    {
        let mut disk = disk.lock().unwrap();
        (disk.stop_at, disk.stopped) = (None, false);
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while read().is_err() {
        assert!(std::time::Instant::now() < until, "it stays closed: {:?}", read());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    queue.stop();
    thread.join().unwrap();
}

#[test]
fn a_commit_costs_two_syncs_however_many_are_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let mut store = Store::open(&place(&disk, directory.path())).unwrap();
    let group = |keys: std::ops::Range<u8>| -> Vec<Op> {
        keys.map(|key| op(effects::step([key; 32], None, dispatched(1, 0)).unwrap().0)).collect()
    };
    store.commit(&group(0..64)).unwrap(); // The file grows, which redb syncs too.
    let before = disk.lock().unwrap().syncs;
    let outcomes = store.commit(&group(64..72)).unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(disk.lock().unwrap().syncs - before, 2);
    let refused = store.commit(&group(64..72)).unwrap();
    assert!(refused.iter().all(|outcome| matches!(outcome, Err(LedgerError::Conflict { .. }))));
    assert_eq!(disk.lock().unwrap().syncs - before, 2, "a refusal costs none");
}

#[test]
fn an_append_that_is_asked_again_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let at = place(&disk, directory.path());
    let again = |again| {
        Op::new(batch(effects::step([1; 32], None, dispatched(1, 0)).unwrap().0), Some([7; 16]), again).unwrap()
    };
    let mut store = Store::open(&at).unwrap();
    for _ in 0..2 {
        assert_eq!(store.commit(&[again(true)]).unwrap(), [Ok(vec![1, 1])]);
    }
    // Another owner, who never heard of it, finds it in the ledger.
    drop(store);
    let mut store = Store::open(&at).unwrap();
    assert_eq!(store.commit(&[again(true)]).unwrap(), [Ok(vec![1, 1])]);
    let mut other = again(true);
    other.nonce = Some([8; 16]);
    assert!(matches!(store.commit(&[other]).unwrap()[..], [Err(LedgerError::Conflict { .. })]));
}

#[test]
fn a_torn_marker_leaves_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("head");
    let mark = |seq| super::marker::Mark { ledger: [1; 16], seq, digest: sha256(&[seq as u8]) };
    let (marker, none) = Marker::open(&path).unwrap();
    assert_eq!((none, marker.next_round()), (None, 1));
    for seq in 1..=3 {
        marker.write(mark(seq), seq).unwrap();
        assert_eq!(Marker::open(&path).unwrap().1, Some(mark(seq)));
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(Marker::open(&path).unwrap().1, Some(mark(2)));
}
