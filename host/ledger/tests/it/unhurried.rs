//! An event that nobody waits for: who sees it when, and what comes of it where another is first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use oncegate_ledger::effects::{fold_records, step};
use oncegate_ledger::memory::MemoryLedger;
use oncegate_ledger::{
    Append, Effect, Effects, Event, Expect, Ledger, LedgerError, LedgerIdentity, Record, StateTag, Stored, StreamId,
    Ties,
};
use tokio::sync::Semaphore;

use crate::samples::{classified, dispatch, dispatched, done, responded};

const KEY: [u8; 32] = [1; 32];

/// A ledger that stores what nobody waits for when it is told to.
struct Slow {
    inner: MemoryLedger,
    opens: Semaphore,
    fails: AtomicBool,
}

#[async_trait]
impl Ledger for Slow {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.inner.append(batch).await
    }

    async fn append_unhurried(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.opens.acquire().await.unwrap().forget();
        if self.fails.load(Ordering::Relaxed) {
            return Err(LedgerError::Unavailable { why: "test".to_owned() });
        }
        self.inner.append(batch).await
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.inner.read(stream).await
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        self.inner.scan(from_seq, limit).await
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

fn slow() -> (Arc<Slow>, Effects) {
    let ledger = Arc::new(Slow { inner: MemoryLedger::new(), opens: Semaphore::new(0), fails: AtomicBool::new(false) });
    (Arc::clone(&ledger), Effects::new(ledger))
}

/// A row whose answer is stored.
async fn answered(effects: &Effects, key: [u8; 32]) -> Effect {
    effects.append(key, 0, dispatched(1, 0), Vec::new()).await.unwrap();
    effects.append(key, 1, responded(1, b"{}"), Vec::new()).await.unwrap()
}

async fn stored_state(ledger: &Slow, key: [u8; 32]) -> StateTag {
    fold_records(&ledger.read(StreamId::effect(key)).await.unwrap()).unwrap().unwrap().state
}

#[tokio::test]
async fn readers_see_the_row_at_once_and_the_ledger_when_it_has_landed() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    // Nobody had the receipt when it was looked up.
    let guards = vec![Append::guard(StreamId::receipt("acme-eu", "re_1"), Expect::Version(0))];
    let (told, mut landing) =
        effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), guards).unwrap().unwrap();
    landing.begin();
    assert_eq!((told.state, told.receipt.as_deref()), (StateTag::Done, Some("re_1")));
    assert_eq!(effects.get(KEY).await.unwrap(), Some(told.clone()));
    assert_eq!(stored_state(&ledger, KEY).await, StateTag::Responded);
    ledger.opens.add_permits(1);
    landing.landed().await.unwrap();
    assert_eq!(stored_state(&ledger, KEY).await, StateTag::Done);
    assert_eq!(effects.get(KEY).await.unwrap(), Some(told));
}

#[tokio::test]
async fn what_comes_after_it_waits_for_it() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    let (told, mut landing) =
        effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), Vec::new()).unwrap().unwrap();
    landing.begin();
    let later = tokio::spawn({
        let effects = effects.clone();
        let event = Event::Confirmed { at: 9, receipt: "re_1".into() };
        async move { effects.advance(KEY, Some(&told), event, Vec::new()).await }
    });
    tokio::task::yield_now().await;
    assert!(!later.is_finished());
    ledger.opens.add_permits(1);
    landing.landed().await.unwrap();
    assert!(later.await.unwrap().unwrap().confirmed);
}

#[tokio::test]
async fn another_writer_that_was_first_is_read() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    let (_, mut landing) =
        effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), Vec::new()).unwrap().unwrap();
    landing.begin();
    // Another process wishes a revocation while the event is on its way.
    let (actor, reason) = ("ada".to_owned(), "test".to_owned());
    let wish = Event::RevokeWished { actor, reason, at: 2, decision: None };
    ledger.append(vec![step(KEY, Some(&row), wish).unwrap().0]).await.unwrap();
    ledger.opens.add_permits(1);
    assert!(matches!(landing.landed().await, Err(LedgerError::Conflict { .. })));
    let row = effects.get(KEY).await.unwrap().unwrap();
    assert_eq!((row.state, row.revoke_wished, row.version), (StateTag::Responded, true, 3));
    // A fact that comes in still ends in done.
    let row = effects.advance(KEY, Some(&row), classified(1, done("re_1")), Vec::new()).await.unwrap();
    assert_eq!(row.state, StateTag::Done);
}

#[tokio::test]
async fn one_that_fails_leaves_what_is_stored() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    ledger.fails.store(true, Ordering::Relaxed);
    ledger.opens.add_permits(1);
    let (_, landing) = effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), Vec::new()).unwrap().unwrap();
    assert!(landing.landed().await.is_err());
    assert_eq!(effects.get(KEY).await.unwrap().unwrap().state, StateTag::Responded);
    // One that is dropped, as by a process that ends, is the same.
    drop(effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), Vec::new()).unwrap());
    assert_eq!(effects.get(KEY).await.unwrap().unwrap().state, StateTag::Responded);
}

#[tokio::test]
async fn a_receipt_that_is_being_given_is_waited_for() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    let receipt = StreamId::receipt("acme-eu", "re_1");
    let giving = effects.giving(receipt, KEY).await;
    let (_, mut landing) =
        effects.advance_unhurried(KEY, &row, classified(1, done("re_1")), Vec::new()).unwrap().unwrap();
    landing.begin();
    // Another effect of this process was answered with the same receipt: by a lookup, or by a provider that lies.
    let other = answered(&effects, [2; 32]).await;
    let taken = tokio::spawn({
        let effects = effects.clone();
        async move { effects.advance([2; 32], Some(&other), classified(1, done("re_1")), Vec::new()).await }
    });
    let asked = tokio::spawn({
        let effects = effects.clone();
        async move { effects.of_receipt(receipt).await }
    });
    tokio::task::yield_now().await;
    assert!(!taken.is_finished() && !asked.is_finished());
    ledger.opens.add_permits(1);
    landing.landed().await.unwrap();
    drop(giving);
    taken.await.unwrap().unwrap();
    let records = asked.await.unwrap().unwrap();
    assert_eq!(records.first().map(|record| record.event.clone()), Some(Event::ReceiptKnown { effect: KEY }));
}

#[tokio::test]
async fn what_changes_other_rows_is_waited_for() {
    let (_, effects) = slow();
    for ties in [
        Ties { undoes: Some([9; 32].into()), ..Ties::default() },
        Ties { completes: Some([9; 32].into()), ..Ties::default() },
    ] {
        let key = rand::random();
        let event = Event::Dispatched(Box::new(oncegate_ledger::Dispatch { ties, ..dispatch(1, 0, false) }));
        effects.append(key, 0, event, Vec::new()).await.unwrap();
        let row = effects.append(key, 1, responded(1, b"{}"), Vec::new()).await.unwrap();
        assert!(effects.advance_unhurried(key, &row, classified(1, done("re_1")), Vec::new()).unwrap().is_none());
    }
}

#[tokio::test]
async fn a_row_that_is_kept_is_read_again_when_it_has_changed() {
    let (ledger, effects) = slow();
    let row = answered(&effects, KEY).await;
    assert_eq!(effects.get(KEY).await.unwrap(), Some(row.clone()));
    let elsewhere = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    let done = elsewhere.advance(KEY, Some(&row), classified(1, done("re_1")), Vec::new()).await.unwrap();
    assert_eq!(effects.get(KEY).await.unwrap(), Some(done));
    let stale = effects.advance(KEY, Some(&row), classified(1, crate::samples::unknown()), Vec::new()).await;
    assert!(stale.unwrap_err().is_conflict());
}

#[tokio::test]
async fn streams_that_end_the_same_are_not_read_again_and_others_are() {
    let (_, effects) = slow();
    let receipts = [StreamId::receipt("acme-eu", "re_1"), StreamId::receipt("acme-eu", "re_2")];
    assert!(effects.records(&receipts).await.unwrap().iter().all(|records| records.is_empty()));
    for n in 1..3 {
        let event = Event::ReceiptKnown { effect: [n; 32] };
        effects.ledger.append(vec![Append::new(receipts[0], oncegate_ledger::Expect::Any, event)]).await.unwrap();
        for _ in 0..2 {
            let read = effects.records(&receipts).await.unwrap();
            assert_eq!((read[0].len(), read[1].len()), (usize::from(n), 0));
            assert_eq!(&read[0][..], effects.ledger.read(receipts[0]).await.unwrap());
        }
    }
}
