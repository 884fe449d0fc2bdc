//! A ledger moves from a file into a database, with everything that anybody may ask of it later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use oncegate_ledger::postgres::{Move, PostgresLedger, migrate};
use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::{
    Append, Effects, Event, Expect, Ledger, LedgerError, LedgerIdentity, Record, StateTag, Stored, StreamId,
    StreamKind, verify,
};

use super::cluster::Cluster;
use crate::histories::contents;
use crate::samples::*;

fn by() -> Move {
    Move { actor: "ann".into(), reason: "more hosts".into(), at: 5 }
}

/// Reads a few records at a time, and fails when so many pages were read.
struct Halting {
    inner: Arc<RedbLedger>,
    pages: AtomicU32,
}

#[async_trait]
impl Ledger for Halting {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.inner.append(batch).await
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.inner.read(stream).await
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        let halted = LedgerError::Unavailable { why: "halted".into() };
        let left = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() { Err(halted) } else { self.inner.scan(from_seq, limit.min(7)).await }
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        self.inner.list(state, after, limit).await
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        self.inner.load(bytes).await
    }

    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        self.inner.forget(streams).await
    }

    async fn sweep(&self) -> Result<u64, LedgerError> {
        self.inner.sweep().await
    }

    fn identity(&self) -> LedgerIdentity {
        self.inner.identity()
    }
}

/// Effects in several states, one pruned, large bytes, a permit that was taken from.
async fn filled(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    for n in 0..20_u8 {
        let key = [n; 32];
        effects.append(key, 0, dispatched(n, 0), Vec::new()).await.unwrap();
        if n % 2 == 0 {
            effects.append(key, 1, responded(n, &vec![n; usize::from(n) * 20_000]), Vec::new()).await.unwrap();
            effects.append(key, 2, classified(n, done(&format!("re_{n}"))), Vec::new()).await.unwrap();
        }
    }
    let row = effects.get([4; 32]).await.unwrap().unwrap();
    effects.bury(&[([4; 32], row)], 9_000).await.unwrap();
    ledger.forget(vec![StreamId::effect([4; 32])]).await.unwrap();
    let permit = StreamId { kind: StreamKind::Permit, id: [1; 32] };
    let (actor, reason) = ("ann".to_owned(), "q4".to_owned());
    let granted = Event::PermitGranted { amount: 3, document: Stored::empty(), actor, reason, at: 1 };
    let taken = Event::PermitReserved { effect: [1; 32], amount: 2, at: 1 };
    ledger.append(vec![Append::new(permit, Expect::Version(0), granted)]).await.unwrap();
    ledger.append(vec![Append::new(permit, Expect::Any, taken)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_moves_whole_however_often_it_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.redb");
    let redb = Arc::new(RedbLedger::init(&path, 1).unwrap());
    filled(Arc::clone(&redb) as Arc<dyn Ledger>).await;
    let before = contents(&*redb).await;
    let place = Cluster::shared().place("");
    let mut halting = Halting { inner: Arc::clone(&redb), pages: AtomicU32::new(0) };
    let mut heard = Vec::new();
    let mut halts = 0;
    let (moved, checkpoint) = loop {
        // Each try comes a few pages further: no step of it is spared.
        halting.pages = AtomicU32::new(2 + 4 * halts);
        match migrate(&halting, &place.url, &by(), &mut |count| heard.push(count)).await {
            Ok(moved) => break moved,
            Err(LedgerError::Unavailable { why }) if why == "halted" => halts += 1,
            Err(error) => panic!("{error}"),
        }
        let closed = PostgresLedger::open(&place.url).await.err();
        assert!(matches!(&closed, Some(LedgerError::Unavailable { why }) if why.contains("moved")), "{closed:?}");
    };
    assert!(halts > 3 && heard.iter().max() == Some(&checkpoint.seq), "{halts} {heard:?}");
    assert_eq!(contents(&moved).await, before, "every record, byte and list");
    assert_eq!(checkpoint, verify::checkpoint(&*redb).await.unwrap());
    assert_eq!((moved.identity().id, verify::verify(&moved).await.unwrap().is_sound()), (redb.identity().id, true));
    // The source takes nothing any more; what it became goes on.
    let intent = |n| {
        let intent = Append::new(StreamId::effect([n; 32]), Expect::Version(0), dispatched(n, 0));
        Append { state: Some(StateTag::Dispatched), ..intent }
    };
    assert!(matches!(redb.append(vec![intent(90)]).await, Err(LedgerError::Sealed { .. })));
    moved.append(vec![intent(90)]).await.unwrap();
    let effects = Effects::new(Arc::new(moved));
    effects.append([1; 32], 1, responded(1, b"late"), Vec::new()).await.unwrap();
    assert_eq!(effects.raw_answer([18; 32], [18; 16]).await.unwrap().len(), 360_000);
    let permit = StreamId { kind: StreamKind::Permit, id: [1; 32] };
    let asked = effects.ledger.append(vec![Append::guard(permit, Expect::Remaining { at_least: 2 })]).await;
    assert!(matches!(asked, Err(LedgerError::Condition { .. })), "{asked:?}");
    assert!(verify::verify(&*effects.ledger).await.unwrap().is_sound());
    let again = migrate(&*redb, &place.url, &by(), &mut |_| {}).await.err();
    assert!(matches!(again, Some(LedgerError::Exists { .. })), "{again:?}");
    drop(effects);
    PostgresLedger::open(&place.url).await.unwrap();
}
