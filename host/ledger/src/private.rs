//! Privacy: labels, raw bytes and generated text under a key for what they belong to.
//!
//! [`PrivateLedger`] stands in front of any back end. What is appended through it is encrypted before it gets
//! there, in the process that writes; what is read through it is decrypted. So chains, digests and content
//! addresses are over ciphertext, and [`crate::verify`] and [`crate::export`] need no key.
//!
//! The key belongs to what effects of a tenant belong to (the context fact `parent`), else to the effect
//! itself. It is random, wrapped by a master key, and kept outside the records ([`store`]). A key is durable
//! before the first ciphertext under it. [`PrivateLedger::erase`] says on record that the text is erased, then
//! destroys the key: identity, states, receipts and comparison stay, so that nothing happens twice.
//!
//! Encryption is switched on by [`Terms`]. Whatever they say, an answer that gives its credential away is
//! encrypted, and so is all that comes later in a stream that has something encrypted in it.
//!
//! Whoever has the folder of keys and the master key can read everything: a copy of both keeps alive what was
//! erased. A key that is missing without an erasure on record is damage, and is told as that; effects answer
//! all the same.

mod cipher;
mod erase;
mod keys;
mod known;
mod places;
mod sealing;
pub mod store;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

pub(crate) use erase::KeyCheck;
pub use erase::{Erasable, Erasure, Tidied};
pub use keys::{Master, MasterKey};

use crate::event::{Enciphered, Private};
use crate::{Append, Event, Ledger, LedgerError, LedgerIdentity, Record, StateTag, Stored, StreamId, StreamKind};
use cipher::{Place, Secret};
use keys::Keys;
use known::Known;
use store::{KeyFolder, KeyStore, KeysInMemory};

/// In place of a text whose erasure is on record.
const ERASED: &str = "(erased)";
/// In place of a text that cannot be read here.
const UNREADABLE: &str = "(not readable)";
/// In place of a text that was not asked for.
const NOT_READ: &str = "(encrypted)";
/// Streams whose key is remembered.
const STREAMS_MAX: usize = 65_536;
/// How often an append is made again because what its effect belongs to has changed meanwhile.
const TRIES_MAX: usize = 16;

/// How private a ledger is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Whether everything private is encrypted, or only what must be.
    pub encrypt: bool,
    /// What wraps the keys.
    pub master: Master,
}

/// See the module.
pub struct PrivateLedger {
    inner: Arc<dyn Ledger>,
    id: [u8; 16],
    keys: Arc<Keys>,
    encrypts: AtomicBool,
    /// Something in the ledger is encrypted.
    any: AtomicBool,
    streams: Mutex<HashMap<StreamId, Known>>,
    /// Version of what effects belong to, and which of its keys is in use.
    parents: Mutex<HashMap<StreamId, (u64, u32)>>,
}

/// The ledger, and the keys beside it.
pub fn over(ledger: Arc<dyn Ledger>, terms: Terms) -> Arc<dyn Ledger> {
    if ledger.private().is_some() {
        return ledger;
    }
    let store = keys_of(&ledger.identity());
    Arc::new(PrivateLedger::new(ledger, store, terms))
}

/// Where the keys of this ledger are.
pub fn keys_of(ledger: &LedgerIdentity) -> Arc<dyn KeyStore> {
    match ledger.path() {
        Some(path) => Arc::new(KeyFolder::of(&path)),
        None => Arc::new(KeysInMemory::default()),
    }
}

/// Whether this stands in the place of a text that cannot be read.
pub fn is_withheld(text: &str) -> bool {
    [ERASED, UNREADABLE, NOT_READ].iter().any(|mark| text.ends_with(mark))
}

/// How many bytes so much ciphertext is of.
pub(crate) fn plain_len(sealed: u64) -> u64 {
    sealed.saturating_sub(cipher::OVERHEAD_BYTES as u64)
}

/// Back ends know no keys.
pub(crate) fn not_here() -> LedgerError {
    LedgerError::Locked { why: "it was asked of the store, which has no keys".to_owned() }
}

/// 32 bytes in lower or upper case digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes?.try_into().ok() } else { None }
}

impl PrivateLedger {
    /// A ledger with its keys in this store.
    pub fn new(inner: Arc<dyn Ledger>, store: Arc<dyn KeyStore>, terms: Terms) -> PrivateLedger {
        let id = inner.identity().id;
        PrivateLedger {
            id,
            keys: Arc::new(Keys::new(id, store, terms.master)),
            inner,
            encrypts: AtomicBool::new(terms.encrypt),
            any: AtomicBool::new(false),
            streams: Mutex::default(),
            parents: Mutex::default(),
        }
    }

    /// From now on everything private is encrypted, or only what must be.
    pub fn set_encrypt(&self, encrypt: bool) {
        self.encrypts.store(encrypt, Ordering::Relaxed);
    }

    /// Whether nothing is encrypted, as far as this process has seen.
    pub fn is_plain(&self) -> bool {
        !self.encrypts.load(Ordering::Relaxed) && !self.any.load(Ordering::Relaxed)
    }

    /// The ledger as it is stored: what `verify` and `export` read.
    pub fn stored(&self) -> &Arc<dyn Ledger> {
        &self.inner
    }

    /// Whether a new key could be made and read back now.
    ///
    /// # Errors
    /// Why not.
    pub async fn probe(&self) -> Result<(), LedgerError> {
        let keys = Arc::clone(&self.keys);
        blocking(move || keys.probe()).await
    }

    fn place(&self, stream: StreamId, key: crate::KeyName, part: u8) -> Place {
        Place { ledger: self.id, stream, key, part }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<StreamId, Known>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parents(&self) -> MutexGuard<'_, HashMap<StreamId, (u64, u32)>> {
        self.parents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, stream: StreamId, known: Known) {
        let mut streams = self.streams();
        if streams.len() >= STREAMS_MAX {
            streams.clear();
        }
        streams.insert(stream, known);
    }

    /// The key of this name; none where it is gone.
    async fn find(&self, name: crate::KeyName) -> Result<Option<Arc<Secret>>, LedgerError> {
        if let Some(known) = self.keys.remembered(&name) {
            return Ok(Some(known));
        }
        let keys = Arc::clone(&self.keys);
        blocking(move || keys.find(&name)).await
    }

    /// Whether it is on record that this was erased, by the records of its own stream, or of what it belongs to.
    async fn is_erased(&self, private: &Private, later: &[Record]) -> Result<bool, LedgerError> {
        if later.iter().any(|record| known::erases(&record.event, &private.key)) {
            return Ok(true);
        }
        let Some(object) = known::record_of(&private.key).filter(|id| id.kind == StreamKind::Parent) else {
            return Ok(false);
        };
        // An effect says so itself; a plan or a task does not.
        let own = later.first().is_some_and(|record| record.stream.kind == StreamKind::Effect);
        if own {
            return Ok(false);
        }
        let records = self.inner.read(object).await?;
        Ok(records.iter().any(|record| known::erases(&record.event, &private.key)))
    }

    /// The event with what can be read of it.
    async fn opened(&self, private: &Private, stream: StreamId, erased: bool) -> Result<Event, LedgerError> {
        let mut event = private.event.clone();
        for (part, stored) in places::bytes(&mut event).into_iter().filter(|(_, stored)| !stored.is_empty()) {
            let bytes = std::mem::take(stored);
            let sealed = Enciphered { key: private.key, stream, part: part as u8, erased, bytes };
            *stored = Stored::Private(Box::new(sealed));
        }
        if erased {
            self.keys.forget(&private.key);
            places::withhold(&mut event, ERASED);
            return Ok(event);
        }
        let found = match self.find(private.key).await {
            Ok(found) => found,
            Err(LedgerError::Locked { .. } | LedgerError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        let place = self.place(stream, private.key, places::Part::Texts as u8);
        let texts = found.and_then(|secret| cipher::decrypt(&secret, &place, &private.texts));
        if texts.is_none_or(|texts| !sealing::put_texts(&mut event, &texts)) {
            places::withhold(&mut event, UNREADABLE);
        }
        Ok(event)
    }

    async fn open_all(&self, stream: StreamId, records: &mut [Record]) -> Result<(), LedgerError> {
        for at in 0..records.len() {
            let Event::Private(private) = &records[at].event else { continue };
            self.any.store(true, Ordering::Relaxed);
            let erased = self.is_erased(private, &records[at..]).await?;
            let event = self.opened(private, stream, erased).await?;
            records[at].event = event;
        }
        Ok(())
    }

    async fn load_private(&self, sealed: &Enciphered) -> Result<Vec<u8>, LedgerError> {
        if sealed.erased {
            return Err(LedgerError::Erased);
        }
        let Some(secret) = self.find(sealed.key).await? else {
            return Err(self.gone(sealed).await?);
        };
        let bytes = self.inner.load(&sealed.bytes).await?;
        let place = self.place(sealed.stream, sealed.key, sealed.part);
        let plain = cipher::decrypt(&secret, &place, &bytes);
        plain.ok_or_else(|| LedgerError::damaged("encrypted bytes are not those that were written here"))
    }

    /// Why a key is not there.
    async fn gone(&self, sealed: &Enciphered) -> Result<LedgerError, LedgerError> {
        let mut streams = vec![sealed.stream];
        streams.extend(known::record_of(&sealed.key));
        for stream in streams {
            let records = self.inner.read(stream).await?;
            if records.iter().any(|record| known::erases(&record.event, &sealed.key)) {
                return Ok(LedgerError::Erased);
            }
        }
        Ok(LedgerError::KeyMissing { key: store::file_stem(&sealed.key) })
    }
}

/// Keys are files: never touched on an async thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LedgerError::unavailable(format!("a key could not be looked at: {error}"))),
    }
}

#[async_trait]
impl Ledger for PrivateLedger {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        if !self.concerns(&batch) {
            return self.inner.append(batch).await;
        }
        for _ in 0..TRIES_MAX {
            let sealed = self.seal(&batch).await?;
            match self.inner.append(sealed.batch.clone()).await {
                Err(LedgerError::Conflict { stream, .. }) if sealed.guards.contains(&stream) => {
                    self.parents().remove(&stream);
                }
                Err(error) => return Err(error),
                Ok(versions) => {
                    self.stored_now(sealed).await;
                    return Ok(versions);
                }
            }
        }
        Err(LedgerError::unavailable("what an effect belongs to changes too often"))
    }

    async fn append_unhurried(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        if self.concerns(&batch) { self.append(batch).await } else { self.inner.append_unhurried(batch).await }
    }

    async fn marked(&self) -> Result<(), LedgerError> {
        self.inner.marked().await
    }

    /// What is encrypted waits for a key before it is handed in: only what is not is handed in at once.
    fn foreign_appends(&self) -> Option<u64> {
        self.inner.foreign_appends().filter(|_| self.is_plain())
    }

    async fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<crate::Tip>>, LedgerError> {
        self.inner.tips(streams).await
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        let mut records = self.inner.read(stream).await?;
        if known::is_covered(stream.kind) {
            let known = Known::of(stream, &records);
            self.open_all(stream, &mut records).await?;
            if known.is_private || self.encrypts.load(Ordering::Relaxed) {
                self.remember(stream, known);
            }
        }
        Ok(records)
    }

    /// Texts are not read: nobody looks for one here.
    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        let mut records = self.inner.scan(from_seq, limit).await?;
        for record in &mut records {
            let Event::Private(private) = &record.event else { continue };
            let mut event = private.event.clone();
            places::withhold(&mut event, NOT_READ);
            for (part, stored) in places::bytes(&mut event).into_iter().filter(|(_, stored)| !stored.is_empty()) {
                let bytes = std::mem::take(stored);
                let (key, part) = (private.key, part as u8);
                let sealed = Enciphered { key, stream: record.stream, part, erased: false, bytes };
                *stored = Stored::Private(Box::new(sealed));
            }
            record.event = event;
        }
        Ok(records)
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        self.inner.list(state, after, limit).await
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        match bytes {
            Stored::Private(sealed) => self.load_private(sealed).await,
            bytes => self.inner.load(bytes).await,
        }
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

    fn incarnation(&self) -> Option<[u8; 16]> {
        self.inner.incarnation()
    }

    async fn silence(&self, host: [u8; 16]) -> Result<Option<std::time::Duration>, LedgerError> {
        self.inner.silence(host).await
    }

    fn private(&self) -> Option<&PrivateLedger> {
        Some(self)
    }
}
