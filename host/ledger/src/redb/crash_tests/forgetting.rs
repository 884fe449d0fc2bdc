//! The disk stopped at every sync while records before tombstones are removed.
//!
//! Goal: each stream is whole or begins with its tombstone, never anything between; the ledger opens and
//! is not behind its marker, which may have named a record that went; the answer is the same.

use std::sync::{Arc, Mutex};

use rand::{SeedableRng, rngs::SmallRng};

use super::disk::Disk;
use super::{EFFECTS, LIFE, SEED, created, live, op, place};
use crate::redb::protocol::{Reply, Request};
use crate::redb::reads::Reads;
use crate::redb::store::{Place, Store};
use crate::{Event, StateTag, StreamId, effects};

fn streams() -> Vec<StreamId> {
    (0..EFFECTS).map(|key| StreamId::effect([key; 32])).collect()
}

/// Every effect done and with its tombstone, nothing removed yet; the marker is in the directory.
fn buried(directory: &std::path::Path) -> Vec<u8> {
    let disk = Arc::new(Mutex::new(Disk::from(created(directory))));
    let mut store = Store::open(&place(&disk, directory)).unwrap();
    assert_eq!(live(&mut store), [LIFE; EFFECTS as usize]);
    let at = place(&disk, directory);
    for stream in streams() {
        let row = effects::fold_records(&read(&store, &at, stream)).unwrap().unwrap();
        let pruned = Event::Pruned(Box::new(row.to_tombstone(9_000).unwrap()));
        let (append, _) = effects::step(stream.id, Some(&row), pruned).unwrap();
        store.commit(&[op(append)]).unwrap().pop().unwrap().unwrap();
    }
    drop(store);
    let disk = disk.lock().unwrap();
    disk.durable.clone()
}

fn read(store: &Store, place: &Place, stream: StreamId) -> Vec<crate::Record> {
    let reads = Reads::new(store.database(), place.segments.clone());
    match reads.answer(&Request::Read { stream }) {
        Ok(Reply::Records(records)) => records,
        other => panic!("it does not read: {other:?}"),
    }
}

/// How many streams begin with their tombstones.
fn cut(place: &Place) -> usize {
    let store = Store::open(place).unwrap_or_else(|error| panic!("it does not open: {error}"));
    let cut = streams().into_iter().filter(|stream| {
        let records = read(&store, place, *stream);
        assert!([1, LIFE + 1].contains(&records.len()), "{} of {} records are left", records.len(), LIFE + 1);
        let row = effects::fold_records(&records).unwrap().unwrap();
        assert_eq!((row.state, row.receipt.as_deref(), row.version), (StateTag::Done, Some("re_1"), 4));
        records.len() == 1
    });
    cut.count()
}

#[test]
fn a_stop_while_forgetting_leaves_each_stream_whole_or_cut() {
    let mut random = SmallRng::seed_from_u64(SEED);
    let (mut none, mut all, mut images) = (0, 0, 0);
    for stop_at in 1.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(Mutex::new(Disk::from(buried(directory.path()))));
        disk.lock().unwrap().stop_at = Some(stop_at);
        let forgot = Store::open(&place(&disk, directory.path())).and_then(|mut store| store.forget(&streams()));
        let marker = std::fs::read(directory.path().join("head")).unwrap();
        let stopped = std::mem::take(&mut *disk.lock().unwrap());
        for image in stopped.images(&mut random) {
            std::fs::write(directory.path().join("head"), &marker).unwrap();
            let disk = Arc::new(Mutex::new(Disk::from(image.bytes.clone())));
            let at = place(&disk, directory.path());
            let cut = cut(&at);
            assert!(
                cut == usize::from(EFFECTS) || cut == 0 && forgot.is_err(),
                "{cut} after {forgot:?}, {}",
                image.what
            );
            (none, all, images) = (none + usize::from(cut == 0), all + usize::from(cut > 0), images + 1);
            // Asking again removes the rest.
            let mut store = Store::open(&at).unwrap();
            store.forget(&streams()).unwrap();
            drop(store);
            assert_eq!(self::cut(&at), usize::from(EFFECTS), "{}", image.what);
        }
        if !stopped.stopped {
            break;
        }
    }
    println!("seed {SEED}: {images} images, {none} with all records, {all} with tombstones only");
    assert!(none > 0 && all > 0);
}
