//! What this process knows of rows beside what it would read: rows whose last event is on its way to the ledger and
//! receipts that are being given, which all handles of a ledger in this process share; and what a handle has read.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::{Effect, LedgerIdentity, Record, StreamId, Tip};

/// Rows kept in each of two generations: some 3 KB each, 12 MB in all.
const ROWS_KEPT_MAX: usize = 2_048;
/// Bytes of a row's request, fields and lookups with which it is kept; larger ones are read again.
const ROW_BYTES_KEPT_MAX: u64 = 8 * 1024;
/// Streams kept in each of two generations: recipes, accounts, owners, with a record or two each.
const STREAMS_KEPT_MAX: usize = 4_096;

/// A row as it was read or stored.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) row: Arc<Effect>,
    /// The digest of its last record, where it was read; what this process stored itself is known by its version.
    pub(super) digest: Option<[u8; 32]>,
}

impl Kept {
    /// Whether a row that ends so is this one. A version is given once in a ledger's life.
    pub(super) fn is_at(&self, tip: Option<&Tip>) -> bool {
        tip.is_some_and(|tip| tip.version == self.row.version && self.digest.is_none_or(|digest| digest == tip.digest))
    }
}

/// A stream as it was read.
#[derive(Clone)]
pub(super) struct Read {
    pub(super) tip: Tip,
    pub(super) records: Arc<[Record]>,
}

/// See the module.
pub(super) struct Rows {
    way: Arc<Way>,
    read: Mutex<Before>,
}

/// What all handles of a ledger in this process share.
#[derive(Default)]
struct Way {
    going: Mutex<Going>,
    /// Told whenever something has landed, or a receipt was given.
    landed: Notify,
}

#[derive(Default)]
struct Going {
    on_the_way: HashMap<[u8; 32], Arc<Effect>>,
    /// By receipt: the effect, and how many appends give it to that.
    giving: HashMap<StreamId, ([u8; 32], usize)>,
}

/// What one handle has read.
#[derive(Default)]
struct Before {
    kept: Generations<[u8; 32], Kept>,
    streams: Generations<StreamId, Read>,
}

/// By a ledger's id and URL.
type Ways = HashMap<([u8; 16], String), Weak<Way>>;

/// What is on its way to the ledgers that this process has open.
static WAYS: Mutex<Option<Ways>> = Mutex::new(None);

impl Rows {
    /// For a handle of this ledger.
    pub(super) fn of(ledger: LedgerIdentity) -> Self {
        let mut ways = WAYS.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = ways.get_or_insert_default();
        ways.retain(|_, way| way.strong_count() > 0);
        let known = ways.entry((ledger.id, ledger.url)).or_default();
        let way = known.upgrade().unwrap_or_default();
        *known = Arc::downgrade(&way);
        Self { way, read: Mutex::default() }
    }

    fn going(&self) -> MutexGuard<'_, Going> {
        self.way.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> MutexGuard<'_, Before> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The row as it will be, while its last event is on its way.
    pub(super) fn on_the_way(&self, key: &[u8; 32]) -> Option<Arc<Effect>> {
        self.going().on_the_way.get(key).cloned()
    }

    /// From now on readers in this process see this row; false where another is on its way already.
    pub(super) fn sets_out(&self, key: [u8; 32], row: &Arc<Effect>) -> bool {
        let mut going = self.going();
        if going.on_the_way.contains_key(&key) {
            return false;
        }
        going.on_the_way.insert(key, Arc::clone(row));
        true
    }

    /// It is stored, or will not be: from now on readers read.
    pub(super) fn lands(&self, key: &[u8; 32]) {
        self.going().on_the_way.remove(key);
        self.way.landed.notify_waiters();
    }

    /// Waits until nothing of the row is on its way.
    pub(super) async fn has_landed(&self, key: &[u8; 32]) {
        self.until(|going| !going.on_the_way.contains_key(key)).await;
    }

    /// Waits until the receipt is given to no other effect, and gives it to this one.
    pub(super) async fn give(&self, receipt: StreamId, effect: [u8; 32]) {
        self.until(|going| {
            let (holder, count) = going.giving.entry(receipt).or_insert((effect, 0));
            let free = *holder == effect;
            *count += usize::from(free);
            free
        })
        .await;
    }

    /// Waits until the receipt is given to nobody.
    pub(super) async fn has_been_given(&self, receipt: &StreamId) {
        self.until(|going| !going.giving.contains_key(receipt)).await;
    }

    pub(super) fn given(&self, receipt: &StreamId) {
        let mut going = self.going();
        if let Some((_, count)) = going.giving.get_mut(receipt) {
            *count -= 1;
            if *count == 0 {
                going.giving.remove(receipt);
            }
        }
        drop(going);
        self.way.landed.notify_waiters();
    }

    async fn until(&self, mut so: impl FnMut(&mut Going) -> bool) {
        loop {
            let told = self.way.landed.notified();
            tokio::pin!(told);
            // Before the look, so that what lands in between is heard.
            told.as_mut().enable();
            if so(&mut self.going()) {
                return;
            }
            told.await;
        }
    }

    pub(super) fn kept(&self, key: &[u8; 32]) -> Option<Kept> {
        self.read().kept.get(key)
    }

    /// Keeps a row that was read or stored, unless it is large.
    pub(super) fn keep(&self, key: [u8; 32], row: &Arc<Effect>, digest: Option<[u8; 32]>) {
        if bytes(row) <= ROW_BYTES_KEPT_MAX {
            self.read().kept.put(key, Kept { row: Arc::clone(row), digest }, ROWS_KEPT_MAX);
        }
    }

    pub(super) fn stream(&self, stream: &StreamId) -> Option<Read> {
        self.read().streams.get(stream)
    }

    pub(super) fn keep_stream(&self, stream: StreamId, tip: Tip, records: &Arc<[Record]>) {
        self.read().streams.put(stream, Read { tip, records: Arc::clone(records) }, STREAMS_KEPT_MAX);
    }

    /// After a failure nothing is assumed: everything is read again.
    pub(super) fn forget(&self) {
        *self.read() = Before::default();
    }
}

fn bytes(row: &Effect) -> u64 {
    let dispatch = row.dispatch.iter().map(|dispatch| {
        let lookups: u64 = dispatch.lookups.iter().map(|(_, _, bytes)| bytes.len()).sum();
        dispatch.request.len() + dispatch.fields.len() + lookups
    });
    let proposal = row.proposal.iter().map(|proposal| proposal.request.len() + proposal.fields.len());
    dispatch.chain(proposal).sum()
}

/// A bounded map: when the young generation is full, it becomes the old one, and that one is forgotten.
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Hash + Eq + Copy, V: Clone> Generations<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(known) = self.young.get(key) {
            return Some(known.clone());
        }
        let known = self.old.remove(key)?;
        self.young.insert(*key, known.clone());
        Some(known)
    }

    fn put(&mut self, key: K, value: V, max: usize) {
        self.old.remove(&key);
        if self.young.len() >= max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_kept_and_what_is_not_is_forgotten() {
        let mut map = Generations::default();
        (0..100).for_each(|key| map.put(key, key, 10));
        assert!(map.young.len() + map.old.len() <= 20, "bounded");
        assert_eq!((map.get(&99), map.get(&0)), (Some(99), None));
        let mut map = Generations::default();
        for key in 0..100 {
            map.put(key, key, 10);
            assert_eq!(map.get(&0), Some(0), "asked for all the time");
        }
    }

    #[tokio::test]
    async fn a_receipt_is_given_to_one_effect_at_a_time() {
        use crate::Ledger;
        let ledger = crate::memory::MemoryLedger::new();
        // Two handles of one ledger in one process are one.
        let (rows, others) = (Rows::of(ledger.identity()), Rows::of(ledger.identity()));
        let receipt = StreamId::receipt("acme", "re_1");
        rows.give(receipt, [1; 32]).await;
        rows.give(receipt, [1; 32]).await;
        let other = tokio::spawn(async move { others.give(receipt, [2; 32]).await });
        for _ in 0..2 {
            tokio::task::yield_now().await;
            assert!(!other.is_finished());
            rows.given(&receipt);
        }
        other.await.unwrap();
    }
}
