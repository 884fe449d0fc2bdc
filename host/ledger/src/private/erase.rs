//! Erasing: on record first, then the key, then on record that it is gone.
//!
//! Steps: a mark beside the keys (so that whoever opens the ledger next finds what was interrupted), one commit
//! that says of every effect and of what they belong to that their text is erased, the destruction of the key,
//! a record of that, and the mark away. From the commit on nobody reads the text, whether or not the key is
//! gone already; before it nothing has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::known::{self, Known, Object};
use super::store::{KeyStore, file_stem};
use super::{PrivateLedger, blocking, places};
use crate::event::ObjectKind;
use crate::{
    Append, Effect, EffectsError, Event, Expect, KeyName, LedgerError, PAGE_MAX, Record, StreamId, StreamKind, effects,
    state,
};

/// Lost races of one commit; each was won by somebody.
const RACES_MAX: usize = 16;

/// What is under the keys of one object.
#[derive(Debug)]
pub struct Erasable {
    object: Object,
    /// Version of the object's stream.
    pub version: u64,
    /// The key that is in use: it and those before it are destroyed.
    generation: u32,
    /// Keys before this one are erased already.
    erased_before: u32,
    /// Keys of the effects' own, from before they belonged to the object.
    own: Vec<KeyName>,
    /// Decided effects with encrypted text.
    pub rows: Vec<([u8; 32], Effect)>,
    /// Effects that are not decided: they need their text. With why.
    pub open: Vec<([u8; 32], Effect, String)>,
    /// Effects with text that was stored in clear, before encryption was on: no key destroys that.
    pub clear: Vec<([u8; 32], Effect)>,
    /// Plans whose document is under the key.
    pub plans: usize,
    /// Tasks whose arguments and results are under the key.
    pub tasks: usize,
    /// Those of them that have not ended.
    pub tasks_open: usize,
}

impl Erasable {
    /// Whether there is anything to destroy.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.plans == 0 && self.tasks == 0
    }
}

/// Who erases, and why.
#[derive(Clone, Debug)]
pub struct Erasure {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The decision's id.
    pub decision: String,
    /// When.
    pub at: u64,
}

/// What tidying found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Erasures that had been interrupted.
    pub finished: usize,
    /// Keys that nothing is encrypted under.
    pub unused: usize,
}

impl PrivateLedger {
    /// What of this parent's is under its keys.
    ///
    /// # Errors
    /// Those of [`crate::Ledger::scan`] and [`crate::Ledger::read`].
    pub async fn erasable_of_parent(&self, tenant: &str, parent: &str) -> Result<Erasable, LedgerError> {
        let stream = StreamId::parent(tenant, parent);
        let streams = self.streams_of((ObjectKind::Parent, stream.id)).await?;
        self.erasable((ObjectKind::Parent, stream.id), streams).await
    }

    /// What of this effect, which belongs to nothing, is under its keys.
    ///
    /// # Errors
    /// Those of [`crate::Ledger::read`].
    pub async fn erasable_of_effect(&self, key: [u8; 32]) -> Result<Erasable, LedgerError> {
        let own = (ObjectKind::Effect, key);
        self.erasable(own, BTreeSet::from([StreamId::effect(key)])).await
    }

    /// Streams of which something belongs to the object.
    async fn streams_of(&self, object: Object) -> Result<BTreeSet<StreamId>, LedgerError> {
        let mut found = BTreeSet::new();
        self.each_record(|record| {
            let under = matches!(&record.event, Event::Private(one) if (one.key.kind, one.key.id) == object);
            if under || known::object(record.stream, record.event.plain()) == Some(object) {
                found.insert(record.stream);
            }
        })
        .await?;
        Ok(found)
    }

    async fn each_record(&self, mut look: impl FnMut(&Record) + Send) -> Result<(), LedgerError> {
        let mut from = 1;
        loop {
            let page = self.inner.scan(from, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.seq + 1;
            page.iter().for_each(&mut look);
        }
    }

    async fn erasable(&self, object: Object, streams: BTreeSet<StreamId>) -> Result<Erasable, LedgerError> {
        let (version, generation, erased_before) = self.state_of(object).await?;
        let mut found = Erasable {
            object,
            version,
            generation,
            erased_before,
            own: Vec::new(),
            rows: Vec::new(),
            open: Vec::new(),
            clear: Vec::new(),
            plans: 0,
            tasks: 0,
            tasks_open: 0,
        };
        for stream in streams {
            let records = self.inner.read(stream).await?;
            found.sort(stream, &records)?;
        }
        Ok(found)
    }

    async fn keys_of(&self, object: Object) -> Result<Vec<KeyName>, LedgerError> {
        let store = Arc::clone(self.keys.store());
        let mut keys = blocking(move || store.list()).await?;
        keys.retain(|key| (key.kind, key.id) == object);
        Ok(keys)
    }

    /// Version of the object's stream, which key is in use, and before which all are erased.
    async fn state_of(&self, object: Object) -> Result<(u64, u32, u32), LedgerError> {
        let records = self.inner.read(record_of(object)).await?;
        let version = records.last().map_or(0, |record| record.version);
        if object.0 == ObjectKind::Effect {
            let erasures = Known::of(record_of(object), &records).erasures;
            return Ok((version, erasures, erasures));
        }
        let erased = records.iter().filter_map(|record| match &record.event {
            Event::Erased { key, .. } => Some(key.generation.saturating_add(1)),
            _ => None,
        });
        Ok((version, known::in_use(&records), erased.max().unwrap_or(0)))
    }

    /// Erases what was found, on record. The effects must be as they were found: a change meanwhile is a
    /// conflict, and nothing has happened.
    ///
    /// # Errors
    /// `Illegal` when an effect is not decided. `Conflict`: look again. After any other error the erasure may be on record: the same
    /// again, or the next [`PrivateLedger::tidy`], completes it.
    pub async fn erase(&self, found: &Erasable, erasure: &Erasure) -> Result<(), EffectsError> {
        let key = found.key();
        let version = self.retire(found, erasure.at).await?;
        let event = || Event::Erased {
            key,
            actor: erasure.actor.clone(),
            reason: erasure.reason.clone(),
            at: erasure.at,
            decision: Some(erasure.decision.clone()),
        };
        let mut batch = Vec::new();
        for (effect, row) in &found.rows {
            let (append, after) = effects::step(*effect, Some(row), event())?;
            batch.push(append);
            for own in found.own.iter().filter(|own| own.id == *effect) {
                let (actor, reason) = (erasure.actor.clone(), erasure.reason.clone());
                // The decision is on record already, in the event before it.
                let too = Event::Erased { key: *own, actor, reason, at: erasure.at, decision: None };
                batch.push(effects::step(*effect, Some(&after), too)?.0);
            }
        }
        if key.kind == ObjectKind::Parent {
            batch.push(Append::new(record_of(found.object), Expect::Version(version), event()));
        }
        for key in found.own.iter().chain([&key]) {
            self.mark(*key, true).await?;
        }
        self.inner.append(batch).await?;
        self.parents().remove(&record_of(found.object));
        for key in found.own.iter().chain([&key]) {
            self.destroy(*key, erasure.at).await?;
        }
        Ok(())
    }

    /// Ends the use of a parent's key: whoever writes from now on takes the next one, so that what is under this
    /// one is all there will be. Then it must still be what was found. Gives the version of the parent's stream.
    async fn retire(&self, found: &Erasable, at: u64) -> Result<u64, LedgerError> {
        let (kind, id) = found.object;
        if kind != ObjectKind::Parent {
            return Ok(found.version);
        }
        let stream = StreamId { kind: StreamKind::Parent, id };
        let expected = Expect::Version(found.version);
        let event = Event::KeyRetired { generation: found.generation, at };
        self.inner.append(vec![Append::new(stream, expected, event)]).await?;
        self.parents().remove(&stream);
        let streams = self.streams_of(found.object).await?;
        let mut now = self.erasable(found.object, streams).await?;
        now.generation = found.generation;
        if now.rows_as_they_are() != found.rows_as_they_are() || !now.open.is_empty() || now.tasks_open > 0 {
            return Err(LedgerError::Conflict { stream, expected, found: now.version });
        }
        Ok(now.version)
    }

    /// Destroys the key, and the earlier ones, of an erasure that is on record.
    async fn destroy(&self, key: KeyName, at: u64) -> Result<(), LedgerError> {
        for older in self.keys_of((key.kind, key.id)).await? {
            if older.generation <= key.generation {
                self.keys.forget(&older);
                let store = Arc::clone(self.keys.store());
                blocking(move || store.destroy(&older)).await?;
            }
        }
        self.note_destroyed(key, at).await?;
        self.mark(key, false).await
    }

    async fn mark(&self, key: KeyName, begun: bool) -> Result<(), LedgerError> {
        let store = Arc::clone(self.keys.store());
        blocking(move || store.mark(&key, begun)).await
    }

    async fn note_destroyed(&self, key: KeyName, at: u64) -> Result<(), LedgerError> {
        let stream = record_of((key.kind, key.id));
        let event = Event::KeyDestroyed { generation: key.generation, at };
        for _ in 0..RACES_MAX {
            let records = self.inner.read(stream).await?;
            let told = |record: &Record| matches!(record.event, Event::KeyDestroyed { generation, .. } if generation == key.generation);
            if records.iter().any(told) {
                return Ok(());
            }
            let append = match key.kind {
                ObjectKind::Effect => {
                    let row = effects::fold_records(&records)?;
                    let stepped = effects::step(key.id, row.as_ref(), event.clone());
                    stepped.map_err(LedgerError::damaged)?.0
                }
                _ => Append::new(stream, Expect::Version(records.last().map_or(0, |last| last.version)), event.clone()),
            };
            match self.inner.append(vec![append]).await {
                Err(LedgerError::Conflict { .. }) => {}
                other => return other.map(drop),
            }
        }
        Err(LedgerError::unavailable(format!("{stream} changes too often")))
    }

    /// Completes erasures that were interrupted; returns how many. Costs a look at a folder where there are none.
    ///
    /// # Errors
    /// Those of [`crate::Ledger::read`], and of the keys.
    pub async fn finish(&self, at: u64) -> Result<usize, LedgerError> {
        let store = Arc::clone(self.keys.store());
        let marked = blocking(move || store.marked()).await?;
        let mut finished = 0;
        for key in marked {
            let records = self.inner.read(record_of((key.kind, key.id))).await?;
            // One that is not on record was never decided: its key stays.
            if records.iter().any(|record| known::erases(&record.event, &key)) {
                self.destroy(key, at).await?;
                finished += 1;
            }
        }
        Ok(finished)
    }

    /// Completes erasures that were interrupted, and destroys keys that nothing is encrypted under.
    ///
    /// # Errors
    /// Those of [`crate::Ledger::scan`], and of the keys.
    pub async fn tidy(&self, at: u64) -> Result<Tidied, LedgerError> {
        let finished = self.finish(at).await?;
        let used = self.used().await?;
        let store = Arc::clone(self.keys.store());
        let claimed = blocking(move || {
            let mut claimed = Vec::new();
            for key in store.list()?.into_iter().filter(|key| !used.contains(key)) {
                claimed.extend(store.claim(&key)?.map(|held| (key, held)));
            }
            Ok(claimed)
        });
        let claimed = claimed.await?;
        if claimed.is_empty() {
            return Ok(Tidied { finished, unused: 0 });
        }
        // Whoever used one before it was claimed has stored something by now; nobody else begins to.
        let used = self.used().await?;
        let store = Arc::clone(self.keys.store());
        let unused = blocking(move || {
            let mut unused = 0;
            for (key, _held) in claimed.into_iter().filter(|(key, _)| !used.contains(key)) {
                unused += usize::from(store.destroy(&key)?);
            }
            Ok(unused)
        });
        Ok(Tidied { finished, unused: unused.await? })
    }

    /// Keys that something is encrypted under.
    async fn used(&self) -> Result<BTreeSet<KeyName>, LedgerError> {
        let mut used = BTreeSet::new();
        self.each_record(|record| {
            if let Event::Private(private) = &record.event {
                used.insert(private.key);
            }
        })
        .await?;
        Ok(used)
    }
}

impl Erasable {
    fn key(&self) -> KeyName {
        KeyName { kind: self.object.0, id: self.object.1, generation: self.generation }
    }

    fn rows_as_they_are(&self) -> Vec<([u8; 32], u64)> {
        self.rows.iter().map(|(key, row)| (*key, row.version)).collect()
    }

    /// What is under one of the object's keys, and not erased yet.
    fn sort(&mut self, stream: StreamId, records: &[Record]) -> Result<(), LedgerError> {
        let keys = keys_in(records);
        let is_under = keys.iter().any(|key| {
            (key.kind, key.id) == self.object
                // An effect says itself what of it is erased; a plan or a task does not.
                && (stream.kind == StreamKind::Effect || key.generation >= self.erased_before)
        });
        // What was stored before the effect came to belong to something goes with the rest.
        if is_under && self.object.0 == ObjectKind::Parent {
            let own = keys.iter().filter(|key| (key.kind, key.id) == (ObjectKind::Effect, stream.id));
            self.own.extend(own.copied().max());
        }
        match stream.kind {
            StreamKind::Effect => self.sort_effect(stream, records, is_under)?,
            StreamKind::Plan if is_under => self.plans += 1,
            StreamKind::Task if is_under => {
                self.tasks += 1;
                let ended = |record: &Record| matches!(record.event.plain(), Event::TaskEnded { .. });
                self.tasks_open += usize::from(!records.iter().any(ended));
            }
            _ => {}
        }
        Ok(())
    }

    fn sort_effect(&mut self, stream: StreamId, records: &[Record], is_under: bool) -> Result<(), LedgerError> {
        let Some(row) = effects::fold_records(records)? else { return Ok(()) };
        if records.iter().any(|record| is_clear(&record.event)) {
            self.clear.push((stream.id, row.clone()));
        }
        if is_under {
            let event = Event::Erased {
                key: self.key(),
                actor: "?".to_owned(),
                reason: "?".to_owned(),
                at: row.updated_at,
                decision: None,
            };
            match state::next(Some(&row), &event) {
                Ok(_) => self.rows.push((stream.id, row)),
                Err(illegal) => self.open.push((stream.id, row, illegal.why)),
            }
        }
        Ok(())
    }
}

/// The keys that something in the stream is under, which the stream does not say to be erased.
fn keys_in(records: &[Record]) -> BTreeSet<KeyName> {
    let mut keys = BTreeSet::new();
    for record in records {
        if let Event::Private(private) = &record.event {
            keys.insert(private.key);
        }
        keys.retain(|key| !known::erases(&record.event, key));
    }
    keys
}

/// Private, and stored in clear.
fn is_clear(event: &Event) -> bool {
    !matches!(event, Event::Private(_)) && places::has_any(&mut event.clone())
}

fn record_of((kind, id): Object) -> StreamId {
    let key = KeyName { kind, id, generation: 0 };
    // Plans and tasks of their own are never erased: their streams are as good as any.
    known::record_of(&key).unwrap_or(StreamId { kind: StreamKind::Parent, id })
}

/// What a look at every record says of the keys: those that are missing, and how that is told.
#[derive(Default)]
pub(crate) struct KeyCheck {
    used: BTreeMap<(StreamId, KeyName), u64>,
    erased: BTreeMap<(ObjectKind, [u8; 32]), u32>,
}

impl KeyCheck {
    pub(crate) fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Private(private) => {
                self.used.entry((record.stream, private.key)).or_insert(record.seq);
            }
            Event::Erased { key, .. } => {
                let next = self.erased.entry((key.kind, key.id)).or_default();
                *next = (*next).max(key.generation.saturating_add(1));
            }
            Event::Pruned(tombstone) => {
                let next = self.erased.entry((ObjectKind::Effect, record.stream.id)).or_default();
                *next = (*next).max(tombstone.erasures);
            }
            _ => {}
        }
    }

    /// Streams with something that nobody can read, and nobody erased.
    ///
    /// # Errors
    /// When the keys cannot be listed.
    pub(crate) fn missing(&self, store: &dyn KeyStore) -> Result<Vec<(StreamId, u64, String)>, LedgerError> {
        let there: BTreeSet<KeyName> = store.list()?.into_iter().collect();
        let gone = self.used.iter().filter(|((_, key), _)| {
            let erased = self.erased.get(&(key.kind, key.id)).copied().unwrap_or(0);
            !there.contains(key) && key.generation >= erased
        });
        Ok(gone.map(|((stream, key), seq)| (*stream, *seq, file_stem(key))).collect())
    }
}
