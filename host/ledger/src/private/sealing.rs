//! A batch with its private parts encrypted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_bytes::ByteArray;

use super::cipher::{self, Secret};
use super::known::{self, Known, Object};
use super::store::Held;
use super::{PrivateLedger, blocking, places};
use crate::event::{ObjectKind, Private};
use crate::{Append, Event, Expect, KeyName, LedgerError, Stored, StreamId, StreamKind};

/// A batch that can be stored.
pub(super) struct Sealed {
    pub(super) batch: Vec<Append>,
    /// Streams of what its effects belong to: that they have not changed is a condition of the batch.
    pub(super) guards: HashSet<StreamId>,
    streams: HashMap<StreamId, Known>,
    used: HashMap<KeyName, Arc<Secret>>,
    held: Vec<Held>,
    /// Tasks that are dropped: their keys are of no more use.
    dropped: Vec<KeyName>,
}

impl PrivateLedger {
    /// Whether anything in the batch is to be encrypted, or may be.
    pub(super) fn concerns(&self, batch: &[Append]) -> bool {
        self.encrypts.load(Ordering::Relaxed)
            || self.any.load(Ordering::Relaxed)
            || batch.iter().filter_map(|append| append.event.as_ref()).any(places::must_be_private)
    }

    /// Encrypts what is private in the batch. The keys that it uses are durable.
    pub(super) async fn seal(&self, batch: &[Append]) -> Result<Sealed, LedgerError> {
        let mut sealed = Sealed {
            batch: Vec::with_capacity(batch.len() + 1),
            guards: HashSet::new(),
            streams: HashMap::new(),
            used: HashMap::new(),
            held: Vec::new(),
            dropped: Vec::new(),
        };
        for append in batch {
            let event = match &append.event {
                Some(event) if known::is_covered(append.stream.kind) => {
                    Some(self.seal_event(append, event.clone(), batch, &mut sealed).await?)
                }
                event => event.clone(),
            };
            sealed.batch.push(Append { event, ..append.clone() });
        }
        Ok(sealed)
    }

    async fn seal_event(
        &self,
        append: &Append,
        mut event: Event,
        batch: &[Append],
        sealed: &mut Sealed,
    ) -> Result<Event, LedgerError> {
        let stream = append.stream;
        let mut known = match sealed.streams.get(&stream) {
            Some(known) => *known,
            None => self.known(append).await?,
        };
        known.note(stream, &event);
        if matches!(event, Event::TaskDropped { .. }) {
            sealed.dropped.push(KeyName { kind: ObjectKind::Task, id: stream.id, generation: 0 });
        }
        let wanted = self.encrypts.load(Ordering::Relaxed) || known.is_private || places::must_be_private(&event);
        let ours = event.stored_mut().iter().any(|stored| matches!(stored, Stored::Private(_)));
        let is_sealed = matches!(event, Event::Private(_));
        if !is_sealed && (wanted || ours) && places::has_any(&mut event) {
            known.is_private = true;
            let name = self.name(&known, batch, sealed).await?;
            let secret = self.secret(name, sealed).await?;
            event = self.sealed_event(event, stream, name, &secret).await?;
        }
        sealed.streams.insert(stream, known);
        Ok(event)
    }

    async fn known(&self, append: &Append) -> Result<Known, LedgerError> {
        let stream = append.stream;
        if append.expect == Expect::Version(0) {
            return Ok(Known::new(stream));
        }
        let remembered = self.streams().get(&stream).copied();
        match remembered {
            Some(known) if append.expect == Expect::Version(known.version) => Ok(known),
            _ => Ok(Known::of(stream, &self.inner.read(stream).await?)),
        }
    }

    /// The key that an event of the stream is under now.
    async fn name(&self, known: &Known, batch: &[Append], sealed: &mut Sealed) -> Result<KeyName, LedgerError> {
        let (kind, id): Object = known.object;
        let generation = match kind {
            ObjectKind::Effect => known.erasures,
            ObjectKind::Plan | ObjectKind::Task => 0,
            ObjectKind::Parent => {
                let stream = StreamId { kind: StreamKind::Parent, id };
                let (version, generation) = self.parent(stream).await?;
                if sealed.guards.insert(stream) && batch.iter().all(|append| append.stream != stream) {
                    sealed.batch.push(Append::guard(stream, Expect::Version(version)));
                }
                generation
            }
        };
        Ok(KeyName { kind, id, generation })
    }

    async fn parent(&self, stream: StreamId) -> Result<(u64, u32), LedgerError> {
        let remembered = self.parents().get(&stream).copied();
        if let Some(known) = remembered {
            return Ok(known);
        }
        let records = self.inner.read(stream).await?;
        let version = records.last().map_or(0, |record| record.version);
        let found = (version, known::in_use(&records));
        let mut parents = self.parents();
        if parents.len() >= super::STREAMS_MAX {
            parents.clear();
        }
        parents.insert(stream, found);
        Ok(found)
    }

    async fn secret(&self, name: KeyName, sealed: &mut Sealed) -> Result<Arc<Secret>, LedgerError> {
        if let Some(secret) = sealed.used.get(&name) {
            return Ok(Arc::clone(secret));
        }
        let secret = match self.keys.remembered(&name) {
            Some(secret) => secret,
            None => {
                let keys = Arc::clone(&self.keys);
                let obtained = blocking(move || keys.obtain(&name)).await?;
                sealed.held.extend(obtained.held);
                obtained.secret
            }
        };
        sealed.used.insert(name, Arc::clone(&secret));
        Ok(secret)
    }

    async fn sealed_event(
        &self,
        mut event: Event,
        stream: StreamId,
        key: KeyName,
        secret: &Secret,
    ) -> Result<Event, LedgerError> {
        let mut kept = Vec::new();
        for (part, stored) in places::bytes(&mut event) {
            kept.push((part as u8, std::mem::take(stored)));
        }
        let mut ciphertexts = Vec::with_capacity(kept.len());
        for (part, stored) in kept {
            ciphertexts.push(self.sealed_bytes(stored, stream, key, part, secret).await?);
        }
        for ((_, stored), ciphertext) in places::bytes(&mut event).into_iter().zip(ciphertexts) {
            *stored = ciphertext;
        }
        let place = self.place(stream, key, places::Part::Texts as u8);
        let texts = cipher::encrypt(secret, &place, &take_texts(&mut event)?)?;
        Ok(Event::Private(Box::new(Private { key, event, texts })))
    }

    async fn sealed_bytes(
        &self,
        stored: Stored,
        stream: StreamId,
        key: KeyName,
        part: u8,
        secret: &Secret,
    ) -> Result<Stored, LedgerError> {
        let plain = match stored {
            stored if stored.is_empty() => return Ok(stored),
            // The same bytes in the same place, such as a request that is sent again: they lie there already.
            Stored::Private(sealed) if (sealed.key, sealed.stream, sealed.part) == (key, stream, part) => {
                return Ok(sealed.bytes);
            }
            Stored::Private(sealed) => self.load_private(&sealed).await?,
            Stored::Inline(bytes) => bytes,
            // Bytes that lie in clear already are not made private by a second copy.
            stored => self.inner.load(&stored).await?,
        };
        Ok(cipher::encrypt(secret, &self.place(stream, key, part), &plain)?.into())
    }

    /// The batch is durable: its keys are used now, and its streams known.
    pub(super) async fn stored_now(&self, sealed: Sealed) {
        for (name, secret) in sealed.used {
            self.any.store(true, Ordering::Relaxed);
            self.keys.remember(name, secret);
        }
        drop(sealed.held);
        for (stream, known) in sealed.streams {
            self.remember(stream, known);
        }
        for name in sealed.dropped {
            self.keys.forget(&name);
            let store = Arc::clone(self.keys.store());
            // What stays is found by `tidy`.
            if let Err(error) = blocking(move || store.destroy(&name)).await {
                tracing::warn!(%error, "the key of a task that was dropped is still there");
            }
        }
    }
}

type Texts = (Vec<String>, Vec<ByteArray<32>>);

/// Takes the private texts and digests out of the event.
fn take_texts(event: &mut Event) -> Result<Vec<u8>, LedgerError> {
    let texts = places::texts(event).into_iter().map(std::mem::take).collect();
    let digests = places::digests(event).into_iter().map(|digest| std::mem::take(digest).into()).collect();
    let taken: Texts = (texts, digests);
    let mut bytes = Vec::new();
    ciborium::into_writer(&taken, &mut bytes)
        .map_err(|error| LedgerError::Invalid { why: format!("texts cannot be encoded: {error}") })?;
    Ok(bytes)
}

/// The inverse; false when they are not those of this event.
pub(super) fn put_texts(event: &mut Event, bytes: &[u8]) -> bool {
    let Ok((texts, digests)) = ciborium::from_reader::<Texts, _>(bytes) else { return false };
    if places::texts(event).len() != texts.len() || places::digests(event).len() != digests.len() {
        return false;
    }
    for (place, text) in places::texts(event).into_iter().zip(texts) {
        *place = text;
    }
    for (place, digest) in places::digests(event).into_iter().zip(digests) {
        *place = digest.into_array();
    }
    true
}
