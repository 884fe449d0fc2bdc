//! The disk stopped at every sync of several effects' lives, and what an open finds afterwards.
//!
//! Goal: an effect is absent, in doubt, or done; no acknowledged append is lost; the ledger opens and is
//! not behind its marker. Method: redb writes to a simulated disk that keeps what was synced apart from
//! what was not; after the stop several images are made of the two. A disk that lies about syncs must
//! be caught by the same checks, or they check nothing.

use std::sync::{Arc, Mutex};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use redb::{ConcurrencyMode, Database, StorageBackend};

use super::marker::Marker;
use super::segments::Segments;
use super::store::{Op, Place, Store, write_first};
use crate::samples::*;
use crate::{Append, Effect, Event, Expect, LedgerError, StreamId, effects, sha256};

const EFFECTS: u8 = 4;
const LIFE: usize = 3;

#[derive(Clone, Debug)]
enum Write {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
struct Disk {
    durable: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<Write>,
    syncs: u32,
    stop_at: Option<u32>,
    lies: bool,
    stopped: bool,
}

fn apply(to: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => to.resize(*length as usize, 0),
        Write::Bytes(offset, bytes) => {
            let end = *offset as usize + bytes.len();
            if to.len() < end {
                to.resize(end, 0);
            }
            to[*offset as usize..end].copy_from_slice(bytes);
        }
    }
}

impl Disk {
    fn from(image: Vec<u8>) -> Disk {
        Disk { durable: image.clone(), now: image, ..Disk::default() }
    }

    fn write(&mut self, write: Write) -> std::io::Result<()> {
        if self.stopped {
            return Err(std::io::Error::other("the disk stopped"));
        }
        apply(&mut self.now, &write);
        self.pending.push(write);
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.syncs += 1;
        self.stopped |= self.stop_at == Some(self.syncs);
        if self.stopped {
            return Err(std::io::Error::other("the disk stopped"));
        }
        if !self.lies {
            self.pending.clear();
            self.durable = self.now.clone();
        }
        Ok(())
    }

    /// What could be on the disk now: what was synced, and of the rest nothing, all, a beginning, a
    /// choice, a choice in another order, or torn writes.
    fn images(&self, random: &mut SmallRng) -> Vec<Vec<u8>> {
        let image = |writes: &[Write]| {
            let mut image = self.durable.clone();
            writes.iter().for_each(|write| apply(&mut image, write));
            image
        };
        let mut images = vec![image(&[]), image(&self.pending)];
        if self.pending.is_empty() {
            return images;
        }
        images.push(image(&self.pending[..random.random_range(0..self.pending.len())]));
        for _ in 0..3 {
            let mut chosen: Vec<Write> = self.pending.iter().filter(|_| random.random()).cloned().collect();
            images.push(image(&chosen));
            chosen.reverse();
            images.push(image(&chosen));
            for write in &mut chosen {
                if let Write::Bytes(_, bytes) = write {
                    bytes.truncate((random.random_range(0..=bytes.len()) / 512) * 512);
                }
            }
            images.push(image(&chosen));
        }
        images
    }
}

#[derive(Clone, Debug)]
struct Simulated(Arc<Mutex<Disk>>);

impl StorageBackend for Simulated {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let disk = self.0.lock().unwrap();
        let offset = offset as usize;
        let found = disk.now.get(offset..offset + out.len());
        out.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.lock().unwrap().write(Write::Length(len))
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.lock().unwrap().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.lock().unwrap().write(Write::Bytes(offset, data.to_vec()))
    }
}

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
    let key = append.stream.id[0];
    let lookup = StreamId { kind: crate::StreamKind::Lookup, id: [key; 32] };
    let also = Append::new(lookup, Expect::Any, Event::LookupResolved { effect: [key; 32] });
    Op { batch: vec![append, also], nonce: None, again: false }
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

/// Stops at every sync and examines every image; returns images made and what was found wrong.
fn stop_everywhere(lies: bool) -> (u32, Vec<String>) {
    let mut random = SmallRng::seed_from_u64(11);
    let (mut images, mut wrong) = (0, Vec::new());
    for stop_at in 1.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
        let mut acknowledged = [0; EFFECTS as usize];
        {
            let mut locked = disk.lock().unwrap();
            (locked.stop_at, locked.lies) = (Some(stop_at), lies);
        }
        if let Ok(mut store) = Store::open(&place(&disk, directory.path())) {
            acknowledged = live(&mut store);
        }
        let marker = std::fs::read(directory.path().join("head")).unwrap();
        let (stopped, after) = {
            let locked = disk.lock().unwrap();
            (locked.stopped, locked.images(&mut random))
        };
        for image in after {
            images += 1;
            std::fs::write(directory.path().join("head"), &marker).unwrap();
            let disk = Arc::new(Mutex::new(Disk::from(image)));
            if let Err(why) = examine(&place(&disk, directory.path()), &acknowledged) {
                wrong.push(format!("stopped at sync {stop_at}: {why}"));
            }
        }
        if !stopped {
            return (images, wrong);
        }
    }
    unreachable!()
}

#[test]
fn a_disk_that_stops_at_any_sync_loses_nothing() {
    let (images, wrong) = stop_everywhere(false);
    println!("{images} images");
    assert!(wrong.is_empty(), "{} of {images}: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert!(images > 100);
}

#[test]
fn a_disk_that_lies_is_caught() {
    let (images, wrong) = stop_everywhere(true);
    println!("{} of {images} images caught", wrong.len());
    assert!(wrong.len() > images as usize / 4, "the checks above check something: {} of {images}", wrong.len());
}

#[test]
fn a_failed_commit_is_unknown_and_the_next_incarnation_reads_the_truth() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(Disk::from(created(directory.path()))));
    let at = place(&disk, directory.path());
    let store = Store::open(&at).unwrap();
    let reads = Arc::new(super::reads::Reads::new(store.database(), at.segments.clone()));
    let incarnation = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (queue, thread) = super::committer::start(store, at, Arc::clone(&reads), Arc::clone(&incarnation)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dispatch = |key: u8| op(effects::step([key; 32], None, dispatched(1, 0)).unwrap().0).batch;
    runtime.block_on(queue.append(dispatch(1))).unwrap();
    {
        let mut disk = disk.lock().unwrap();
        disk.stop_at = Some(disk.syncs + 1);
    }
    let failed = runtime.block_on(queue.append(dispatch(2)));
    assert!(matches!(failed, Err(LedgerError::Unavailable { .. })), "{failed:?}");
    // Nothing is assumed while it cannot be opened.
    let read = || reads.answer(&super::protocol::Request::Read { stream: StreamId::effect([1; 32]) });
    assert!(matches!(read(), Err(LedgerError::Unavailable { .. })));
    {
        let mut disk = disk.lock().unwrap();
        (disk.stop_at, disk.stopped) = (None, false);
    }
    std::thread::sleep(std::time::Duration::from_millis(600));
    runtime.block_on(queue.append(dispatch(3))).unwrap();
    assert!(matches!(read(), Ok(super::protocol::Reply::Records(records)) if records.len() == 1));
    assert_eq!(incarnation.load(std::sync::atomic::Ordering::Relaxed), 1);
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
    let again = |again| Op {
        batch: op(effects::step([1; 32], None, dispatched(1, 0)).unwrap().0).batch,
        nonce: Some([7; 16]),
        again,
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
    let (mut marker, none) = Marker::open(&path).unwrap();
    assert_eq!(none, None);
    for seq in 1..=3 {
        marker.write(mark(seq)).unwrap();
        assert_eq!(Marker::open(&path).unwrap().1, Some(mark(seq)));
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[512 + 20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(Marker::open(&path).unwrap().1, Some(mark(2)));
}
