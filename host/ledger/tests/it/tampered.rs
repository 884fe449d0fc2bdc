//! A ledger, or an export of one, that somebody changed: one bit, a record removed, added or moved. The
//! check of the whole finds it, also where every checksum was made right again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::verify::{Report, verify, verify_export};
use oncegate_ledger::{Effects, Event, LedgerError, StreamId, StreamKind, export};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use redb::{ReadableTable, TableDefinition};
use sha2::{Digest, Sha256};

use crate::samples::*;

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// The checksum between the front of a stored record and its event.
const GUARD_BYTES: usize = 8;
/// Where a stored record says how long its front is, and its own number.
const FRONT_AT: std::ops::Range<usize> = 1..5;
const SEQ_AT: std::ops::Range<usize> = 5..13;
const SEED: u64 = 5;
const FLIPS: usize = 400;

/// The ledger of a few effects, closed: one pruned, one with bytes outside its record, one with a stream
/// of one record beside it.
async fn make(path: &Path) {
    let ledger = Arc::new(RedbLedger::init(path, 1).unwrap());
    let effects = Effects::new(ledger.clone());
    for key in 0..4_u8 {
        let length = if key == 1 { 40_000 } else { 300 };
        let lookup = StreamId { kind: StreamKind::Lookup, id: [key; 32] };
        let resolved = Event::LookupResolved { effect: [key; 32] };
        let also = vec![oncegate_ledger::Append::new(lookup, oncegate_ledger::Expect::Any, resolved)];
        let row = effects.append([key; 32], 0, dispatched(1, 0), also).await.unwrap();
        let row = effects.advance([key; 32], Some(&row), responded(1, &vec![key; length]), Vec::new()).await.unwrap();
        let row = effects.advance([key; 32], Some(&row), classified(1, done("re_1")), Vec::new()).await.unwrap();
        if key == 3 {
            let tombstone = Event::Pruned(Box::new(row.to_tombstone(5_000).unwrap()));
            effects.advance([key; 32], Some(&row), tombstone, Vec::new()).await.unwrap();
            oncegate_ledger::Ledger::forget(&*ledger, vec![StreamId::effect([key; 32])]).await.unwrap();
        }
    }
}

/// Copies of one ledger, each to be changed.
struct Scene {
    folder: tempfile::TempDir,
    sound: Vec<(u64, Vec<u8>)>,
}

impl Scene {
    async fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        make(&folder.path().join("sound.redb")).await;
        let mut scene = Scene { folder, sound: Vec::new() };
        scene.sound = records(&scene.path());
        let report = scene.report().await.unwrap();
        assert!(report.is_sound() && report.records as usize == scene.sound.len(), "{report:#?}");
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sound.redb")
    }

    /// As whoever opens it for reading sees it; the marker is not asked.
    async fn report(&self) -> Result<Report, LedgerError> {
        verify(&RedbLedger::open_for_reading(&self.path())?).await
    }

    /// Puts these records in place of all.
    fn replace(&self, by: &[(u64, Vec<u8>)]) {
        write(&self.path(), by);
    }

    #[track_caller]
    fn found(&self, report: Result<Report, LedgerError>, what: &str) {
        match report {
            Ok(report) => assert!(!report.is_sound(), "{what} was not found"),
            Err(error) => assert!(error.is_damaged(), "{what}: {error}"),
        }
    }
}

fn records(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let database = redb::Database::open(path).unwrap();
    let transaction = redb::ReadableDatabase::begin_read(&database).unwrap();
    let table = transaction.open_table(RECORDS).unwrap();
    table
        .iter()
        .unwrap()
        .map(|entry| entry.map(|(seq, value)| (seq.value(), value.value().to_vec())).unwrap())
        .collect()
}

fn write(path: &Path, by: &[(u64, Vec<u8>)]) {
    let database = redb::Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(RECORDS).unwrap();
        table.retain(|_, _| false).unwrap();
        for (seq, value) in by {
            table.insert(seq, value.as_slice()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// A record that says another number, with a checksum that is right.
fn renumbered(value: &[u8], seq: u64) -> Vec<u8> {
    let mut value = value.to_vec();
    value[SEQ_AT].copy_from_slice(&seq.to_be_bytes());
    guarded(value)
}

/// How long the front of a stored record is.
fn front(value: &[u8]) -> usize {
    u32::from_be_bytes(value[FRONT_AT].try_into().unwrap()) as usize
}

/// The record with its checksum made right again.
fn guarded(mut value: Vec<u8>) -> Vec<u8> {
    let front = front(&value);
    let guard = Sha256::digest(&value[..front]);
    value[front..front + GUARD_BYTES].copy_from_slice(&guard[..GUARD_BYTES]);
    value
}

#[tokio::test]
async fn one_flipped_bit_of_a_record_is_found() {
    let scene = Scene::new().await;
    let mut random = SmallRng::seed_from_u64(SEED);
    for flip in 0..FLIPS {
        let mut changed = scene.sound.clone();
        let at = random.random_range(0..changed.len());
        let (_, value) = &mut changed[at];
        let byte = random.random_range(0..value.len());
        value[byte] ^= 1 << random.random_range(0..8);
        scene.replace(&changed);
        scene.found(scene.report().await, &format!("seed {SEED}, flip {flip}: byte {byte} of record {at}"));
    }
}

/// Whoever makes the checksums right again must still make the chain, and cannot.
#[tokio::test]
async fn one_flipped_bit_of_an_event_is_found_behind_a_right_checksum() {
    let scene = Scene::new().await;
    let mut random = SmallRng::seed_from_u64(SEED);
    for flip in 0..FLIPS {
        let mut changed = scene.sound.clone();
        let at = random.random_range(0..changed.len());
        let (_, value) = &mut changed[at];
        // What comes before the event is held against other records below.
        let byte = random.random_range(front(value) + GUARD_BYTES..value.len());
        value[byte] ^= 1 << random.random_range(0..8);
        *value = guarded(value.clone());
        scene.replace(&changed);
        scene.found(scene.report().await, &format!("seed {SEED}, flip {flip}: byte {byte} of record {at}"));
    }
}

#[tokio::test]
async fn each_removed_record_is_found() {
    let scene = Scene::new().await;
    for gone in 0..scene.sound.len() {
        let mut left = scene.sound.clone();
        let (seq, _) = left.remove(gone);
        scene.replace(&left);
        scene.found(scene.report().await, &format!("that record {seq} is gone"));
        // The same, with the others moved up so that no number is missing.
        let first = left[0].0;
        let closed: Vec<(u64, Vec<u8>)> =
            (first..).zip(&left).map(|(seq, (_, value))| (seq, renumbered(value, seq))).collect();
        scene.replace(&closed);
        scene.found(scene.report().await, &format!("that record {seq} is gone and the others moved up"));
    }
}

#[tokio::test]
async fn each_added_record_is_found() {
    let scene = Scene::new().await;
    let next = scene.sound.last().unwrap().0 + 1;
    for (seq, value) in &scene.sound {
        let mut more = scene.sound.clone();
        more.push((next, renumbered(value, next)));
        scene.replace(&more);
        scene.found(scene.report().await, &format!("a second record {seq}"));
    }
}

/// A record that follows rightly, which only the ledger's word of its end does not know.
#[tokio::test]
async fn a_record_that_was_added_behind_the_last_is_found() {
    let scene = Scene::new().await;
    let meta = |path: &Path| -> Vec<(String, Vec<u8>)> {
        let database = redb::Database::open(path).unwrap();
        let transaction = redb::ReadableDatabase::begin_read(&database).unwrap();
        let table = transaction.open_table(META).unwrap();
        table.iter().unwrap().map(|e| e.map(|(k, v)| (k.value().to_owned(), v.value().to_vec())).unwrap()).collect()
    };
    let before = meta(&scene.path());
    let effects = Effects::new(Arc::new(RedbLedger::open(&scene.path()).unwrap()));
    let row = effects.get([0; 32]).await.unwrap();
    let confirmed = Event::Confirmed { at: 1, receipt: "re_1".into() };
    effects.advance([0; 32], row.as_ref(), confirmed, Vec::new()).await.unwrap();
    drop(effects);
    assert!(scene.report().await.unwrap().is_sound());
    let database = redb::Database::open(scene.path()).unwrap();
    let transaction = database.begin_write().unwrap();
    for (key, value) in &before {
        transaction.open_table(META).unwrap().insert(key.as_str(), value.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    scene.found(scene.report().await, "a record behind the last");
}

#[tokio::test]
async fn each_two_records_that_changed_places_are_found() {
    let scene = Scene::new().await;
    for at in 0..scene.sound.len() - 1 {
        let mut moved = scene.sound.clone();
        let (first, second) = (moved[at].0, moved[at + 1].0);
        // Two streams that do not touch may be in any order: what one stream holds may not.
        if stream_of(&moved[at].1) != stream_of(&moved[at + 1].1) {
            continue;
        }
        let values = [renumbered(&moved[at + 1].1, first), renumbered(&moved[at].1, second)];
        [moved[at].1, moved[at + 1].1] = values;
        scene.replace(&moved);
        scene.found(scene.report().await, &format!("records {first} and {second} in each other's place"));
    }
    // Without new numbers and checksums, any two.
    for at in 0..scene.sound.len() - 1 {
        let mut moved = scene.sound.clone();
        let value = moved[at].1.clone();
        moved[at].1 = std::mem::replace(&mut moved[at + 1].1, value);
        scene.replace(&moved);
        scene.found(scene.report().await, &format!("records {at} and the next in each other's place"));
    }
}

/// The stream's name in a stored record, behind layout, length, number and the number before.
fn stream_of(value: &[u8]) -> &[u8] {
    &value[21..54]
}

async fn exported() -> Vec<u8> {
    let scene = Scene::new().await;
    let mut lines = Vec::new();
    export::export(&RedbLedger::open_for_reading(&scene.path()).unwrap(), 1, &mut lines).await.unwrap();
    lines
}

fn is_sound(lines: &[u8]) -> bool {
    verify_export(lines).unwrap().is_sound()
}

#[tokio::test]
async fn an_export_says_what_the_ledger_says() {
    let scene = Scene::new().await;
    let ledger = RedbLedger::open_for_reading(&scene.path()).unwrap();
    let mut lines = Vec::new();
    export::export(&ledger, 1, &mut lines).await.unwrap();
    let (exported, own) = (verify_export(lines.as_slice()).unwrap(), verify(&ledger).await.unwrap());
    assert!(exported.is_sound(), "{exported:#?}");
    assert_eq!(exported, own);
}

#[tokio::test]
async fn one_flipped_bit_of_an_export_is_found() {
    let sound = exported().await;
    let mut random = SmallRng::seed_from_u64(SEED);
    for flip in 0..FLIPS {
        let mut lines = sound.clone();
        let at = random.random_range(0..lines.len() - 1);
        lines[at] ^= 1 << random.random_range(0..8);
        assert!(!is_sound(&lines), "seed {SEED}, flip {flip}: byte {at} was not found");
    }
}

/// The end is short beside the records: flips at random seldom meet it.
#[tokio::test]
async fn every_byte_of_an_exports_end_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = RedbLedger::init(&folder.path().join("new.redb"), 1).unwrap();
    let mut sound = Vec::new();
    export::export(&ledger, 1, &mut sound).await.unwrap();
    assert!(is_sound(&sound));
    let end = sound[..sound.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for at in end..sound.len() {
        for bit in 0..8 {
            let mut lines = sound.clone();
            lines[at] ^= 1 << bit;
            assert!(!is_sound(&lines), "byte {at}, bit {bit} of {}", String::from_utf8_lossy(&sound[end..]));
        }
    }
}

#[tokio::test]
async fn a_line_of_an_export_that_is_gone_added_or_moved_is_found() {
    let sound = exported().await;
    let lines: Vec<&[u8]> = sound.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(is_sound(&lines.concat()));
    for at in 0..lines.len() {
        let mut gone = lines.clone();
        gone.remove(at);
        assert!(!is_sound(&gone.concat()), "line {at} is gone");
        let mut twice = lines.clone();
        twice.insert(at, lines[at]);
        assert!(!is_sound(&twice.concat()), "line {at} is there twice");
        let mut again = lines.clone();
        again.insert(lines.len() - 1, lines[at]);
        assert!(!is_sound(&again.concat()), "line {at} is there again at the end");
        if at + 1 < lines.len() {
            let mut moved = lines.clone();
            moved.swap(at, at + 1);
            assert!(!is_sound(&moved.concat()), "lines {at} and {} changed places", at + 1);
        }
    }
    assert!(!is_sound(b""), "nothing is no export");
}
