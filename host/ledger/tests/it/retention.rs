//! Tombstones: what is dropped, what still answers, and what a removed record looks like elsewhere.

use std::path::Path;
use std::sync::Arc;

use oncegate_ledger::{
    Answer, Append, Effect, Effects, Event, Expect, Ledger, LedgerError, Sender, StateTag, StreamId, StreamKind,
    answer, memory::MemoryLedger, redb::RedbLedger, verify,
};

use crate::samples::*;

const ANSWER_BYTES: usize = 200_000;

fn large(n: u8) -> Vec<u8> {
    (0..ANSWER_BYTES).map(|at| (at % 251) as u8 ^ n).collect()
}

async fn done_with(effects: &Effects, key: [u8; 32], answer: &[u8]) -> Effect {
    effects.append(key, 0, dispatched(1, 0), Vec::new()).await.unwrap();
    effects.append(key, 1, responded(1, answer), Vec::new()).await.unwrap();
    effects.append(key, 2, classified(1, done(&format!("re_{}", key[0]))), Vec::new()).await.unwrap()
}

async fn bury(effects: &Effects, keys: &[[u8; 32]]) {
    let mut rows = Vec::new();
    for key in keys {
        rows.push((*key, effects.get(*key).await.unwrap().unwrap()));
    }
    effects.bury(&rows, 9_000).await.unwrap();
}

async fn a_tombstone_is_all_that_is_left(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    let (gone, kept) = ([70; 32], [71; 32]);
    let before = done_with(&effects, gone, &large(1)).await;
    done_with(&effects, kept, &large(2)).await;
    let whole = ledger.read(StreamId::effect(gone)).await.unwrap();
    bury(&effects, &[gone]).await;
    assert_eq!(ledger.read(StreamId::effect(gone)).await.unwrap().len(), 4, "nothing is removed yet");
    assert_eq!(ledger.forget(vec![StreamId::effect(gone), StreamId::effect(kept)]).await, Ok(3));
    assert_eq!(ledger.forget(vec![StreamId::effect(gone), StreamId::effect([99; 32])]).await, Ok(0));
    assert!(ledger.sweep().await.unwrap() >= ANSWER_BYTES as u64 - 8_192, "the answer's space comes back");
    assert_eq!(ledger.sweep().await, Ok(0));

    let left = ledger.read(StreamId::effect(gone)).await.unwrap();
    assert_eq!((left.len(), left[0].version, left[0].previous), (1, 4, whole[2].digest));
    assert!(ledger.scan(0, 1_000).await.unwrap().iter().all(|record| record.seq != whole[0].seq));
    let row = effects.get(gone).await.unwrap().unwrap();
    assert_eq!(answer(Some(&row), &[], Sender::NotKnown), Answer::Replay);
    assert_eq!((row.receipt, row.version, row.state_since), (before.receipt, 4, before.state_since));
    assert_eq!(row.tombstone.unwrap().ties, before.dispatch.unwrap().ties);
    assert_eq!(ledger.list(StateTag::Done, None, 1_000).await.unwrap().iter().filter(|id| id.id == gone).count(), 1);
    assert_eq!(effects.raw_answer(kept, [1; 16]).await.unwrap(), large(2), "another row's bytes are untouched");
    let report = verify::verify(&*ledger).await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.checkpoint, verify::checkpoint(&*ledger).await.unwrap());
}

async fn a_tombstone_goes_on(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    let key = [72; 32];
    effects.append(key, 0, dispatched(1, 0), Vec::new()).await.unwrap();
    effects.append(key, 1, not_sent(1), Vec::new()).await.unwrap();
    bury(&effects, &[key]).await;
    ledger.forget(vec![StreamId::effect(key)]).await.unwrap();
    let row = effects.get(key).await.unwrap().unwrap();
    assert_eq!(answer(Some(&row), &[], Sender::Stopped), Answer::Dispatch { generation: 1 }, "no key is used twice");
    assert!(effects.advance(key, Some(&row), dispatched(2, 0), Vec::new()).await.is_err());
    let row = effects.advance(key, Some(&row), dispatched(2, 1), Vec::new()).await.unwrap();
    assert_eq!(row.version, 4);
    effects.append(key, 4, not_sent(2), Vec::new()).await.unwrap();
    bury(&effects, &[key]).await;
    assert_eq!(ledger.forget(vec![StreamId::effect(key)]).await, Ok(3), "and again, tombstone and all");
    assert_eq!(effects.get(key).await.unwrap().unwrap().version, 6);
    assert!(verify::verify(&*ledger).await.unwrap().is_sound());
}

/// What an effect holds stays held when its history goes, and is let go when it is undone.
async fn a_tombstone_keeps_its_claims(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    let (key, claim) = ([73; 32], StreamId { kind: StreamKind::Claim, id: [73; 32] });
    let mut intent = dispatch(1, 0, false);
    intent.ties.claims = vec![claim.id];
    let taken = Append::new(claim, Expect::Version(0), Event::ClaimTaken { effect: key, at: 1 });
    effects.append(key, 0, Event::Dispatched(Box::new(intent)), vec![taken]).await.unwrap();
    effects.append(key, 1, responded(1, b"raw"), Vec::new()).await.unwrap();
    effects.append(key, 2, classified(1, done("re_73")), Vec::new()).await.unwrap();
    bury(&effects, &[key]).await;
    ledger.forget(vec![StreamId::effect(key)]).await.unwrap();
    assert_eq!(ledger.read(claim).await.unwrap().len(), 1, "pruning lets go of nothing");
    effects.append(key, 4, Event::Undone { by: [1; 32], at: 2 }, Vec::new()).await.unwrap();
    let last = ledger.read(claim).await.unwrap().pop().unwrap().event;
    assert_eq!(last, Event::ClaimReleased { effect: key, at: 2 });
}

pub(crate) async fn suite(ledger: Arc<dyn Ledger>) {
    a_tombstone_is_all_that_is_left(Arc::clone(&ledger)).await;
    a_tombstone_goes_on(Arc::clone(&ledger)).await;
    a_tombstone_keeps_its_claims(ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_forgets() {
    suite(Arc::new(MemoryLedger::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redb_forgets_as_owner_and_as_client() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    suite(Arc::new(RedbLedger::init(&path, 1).unwrap())).await;
    let path = directory.path().join("m.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    suite(Arc::new(RedbLedger::open(&path).unwrap())).await;
    assert!(verify::verify(&owner).await.unwrap().is_sound());
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    let refused = reader.forget(vec![StreamId::effect([71; 32])]).await;
    assert!(matches!(refused, Err(LedgerError::Unavailable { .. })), "{refused:?}");
}

fn space(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().unwrap().blocks() * 512
}

/// The marker names the last dispatch; where that is removed, the ledger still opens as its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_whose_marked_record_is_removed_is_not_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let key = [5; 32];
    {
        let effects = Effects::new(Arc::new(RedbLedger::init(&path, 1).unwrap()));
        done_with(&effects, key, &large(3)).await;
        bury(&effects, &[key]).await;
        assert_eq!(effects.ledger.forget(vec![StreamId::effect(key)]).await, Ok(3));
        let segment = directory.path().join("l.redb.segments/000001.seg");
        let before = space(&segment);
        assert!(effects.ledger.sweep().await.unwrap() > 0);
        assert!(space(&segment) < before, "the file's space is free again");
    }
    let ledger = RedbLedger::open(&path).unwrap();
    assert!(verify::verify(&ledger).await.unwrap().is_sound());
    // Bytes written after the sweep lie behind what was freed.
    let effects = Effects::new(Arc::new(ledger));
    done_with(&effects, [6; 32], &large(4)).await;
    assert_eq!(effects.ledger.sweep().await, Ok(0));
    assert_eq!(effects.raw_answer([6; 32], [1; 16]).await.unwrap(), large(4));
}

/// Only a tombstone may begin a stream later than at its first version.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_missing_elsewhere_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let (pruned, whole) = ([5; 32], [6; 32]);
    let seqs: Vec<u64> = {
        let effects = Effects::new(Arc::new(RedbLedger::init(&path, 1).unwrap()));
        done_with(&effects, pruned, b"small").await;
        done_with(&effects, whole, b"small").await;
        bury(&effects, &[pruned]).await;
        effects.ledger.forget(vec![StreamId::effect(pruned)]).await.unwrap();
        effects.history(whole).await.unwrap().iter().map(|record| record.seq).collect()
    };
    let sound = std::fs::read(&path).unwrap();
    for seq in &seqs {
        std::fs::write(&path, &sound).unwrap();
        {
            let database = redb::Database::open(&path).unwrap();
            let writing = database.begin_write().unwrap();
            let records = redb::TableDefinition::<u64, &[u8]>::new("records");
            assert!(writing.open_table(records).unwrap().remove(seq).unwrap().is_some());
            writing.commit().unwrap();
        }
        let found = match RedbLedger::open_for_reading(&path) {
            Ok(ledger) => {
                let report = verify::verify(&ledger).await.unwrap();
                assert!(Effects::new(Arc::new(ledger)).get(whole).await.is_err(), "record {seq} is not missed");
                !report.is_sound()
            }
            Err(error) => error.is_damaged(),
        };
        assert!(found, "record {seq} is missing and nobody says so");
    }
}
