//! A ledger in memory: for tests and for `memory:`. It forgets when it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::commit::{self, Head};
use crate::record::Location;
use crate::{Append, Ledger, LedgerError, LedgerIdentity, PAGE_MAX, Record, Role, StateTag, Stored, StreamId};

/// See the module.
pub struct MemoryLedger {
    id: [u8; 16],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<u64, Record>,
    streams: BTreeMap<StreamId, (Head, Vec<u64>)>,
    by_state: BTreeSet<(StateTag, StreamId)>,
    /// Large bytes by number; none where nothing names them any more.
    segments: Vec<Option<Vec<u8>>>,
}

impl MemoryLedger {
    /// A new, empty ledger.
    pub fn new() -> MemoryLedger {
        MemoryLedger { id: rand::random(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        MemoryLedger::new()
    }
}

impl State {
    fn append(&mut self, batch: &[Append]) -> Result<Vec<u64>, LedgerError> {
        let next_seq = self.records.last_key_value().map_or(1, |(seq, _)| seq + 1);
        let entries = commit::decide(batch, next_seq, |stream| Ok(self.streams.get(&stream).map(|(head, _)| *head)))?;
        let mut stored = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut locations = Vec::with_capacity(entry.sealed.large.len());
            for large in &entry.sealed.large {
                locations.push(Location { place: large.place, file: self.segments.len() as u64, offset: 0 });
                self.segments.push(Some(large.bytes.clone()));
            }
            let record = entry.row(None, locations).into_record()?;
            stored.push((entry, record));
        }
        let versions = stored.iter().map(|(entry, _)| entry.after.version).collect();
        for (entry, record) in stored {
            self.store(&entry, record);
        }
        Ok(versions)
    }

    fn store(&mut self, entry: &commit::Entry, record: Record) {
        if let Some(state) = entry.before.and_then(|head| head.state) {
            self.by_state.remove(&(state, entry.stream));
        }
        if let Some(state) = entry.after.state {
            self.by_state.insert((state, entry.stream));
        }
        let (head, seqs) = self.streams.entry(entry.stream).or_insert_with(|| (entry.after, Vec::new()));
        *head = entry.after;
        seqs.push(record.seq);
        self.records.insert(record.seq, record);
    }

    fn forget(&mut self, stream: StreamId) -> u64 {
        let Some((_, seqs)) = self.streams.get_mut(&stream) else { return 0 };
        let begins = |seq: &u64| self.records.get(seq).is_some_and(|record| record.event.may_begin());
        let Some(at) = seqs.iter().rposition(begins) else { return 0 };
        let removed = seqs.drain(..at).filter(|seq| self.records.remove(seq).is_some());
        removed.count() as u64
    }

    fn sweep(&mut self) -> u64 {
        let mut named = BTreeSet::new();
        for record in self.records.values_mut() {
            named.extend(record.event.stored_mut().iter().filter_map(|stored| match stored {
                Stored::Segment { file, .. } => usize::try_from(*file).ok(),
                Stored::Inline(_) | Stored::Gone { .. } | Stored::Private(_) => None,
            }));
        }
        let dead = self.segments.iter_mut().enumerate().filter(|(file, _)| !named.contains(file));
        dead.filter_map(|(_, bytes)| bytes.take()).map(|bytes| bytes.len() as u64).sum()
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.state().append(&batch)
    }

    /// Nobody else has it.
    fn foreign_appends(&self) -> Option<u64> {
        Some(0)
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        let state = self.state();
        let seqs = state.streams.get(&stream).map(|(_, seqs)| seqs.as_slice()).unwrap_or_default();
        Ok(seqs.iter().filter_map(|seq| state.records.get(seq).cloned()).collect())
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        Ok(self.state().records.range(from_seq..).take(limit.min(PAGE_MAX)).map(|(_, record)| record.clone()).collect())
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        let held = self.state();
        let listed = held.by_state.iter().filter(|(tag, stream)| *tag == state && Some(*stream) > after);
        Ok(listed.map(|(_, stream)| *stream).take(limit.min(PAGE_MAX)).collect())
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        match bytes {
            Stored::Inline(bytes) => Ok(bytes.clone()),
            Stored::Gone { digest, .. } => Err(LedgerError::Gone { digest: crate::hex(digest) }),
            Stored::Private(_) => Err(crate::private::not_here()),
            Stored::Segment { file, digest, .. } => {
                let state = self.state();
                let found = usize::try_from(*file).ok().and_then(|file| state.segments.get(file)?.as_ref());
                match found {
                    Some(bytes) if crate::sha256(bytes) == *digest => Ok(bytes.clone()),
                    _ => Err(LedgerError::damaged("stored bytes are not where the record says")),
                }
            }
        }
    }

    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        let mut state = self.state();
        Ok(streams.into_iter().map(|stream| state.forget(stream)).sum())
    }

    async fn sweep(&self) -> Result<u64, LedgerError> {
        Ok(self.state().sweep())
    }

    fn identity(&self) -> LedgerIdentity {
        LedgerIdentity { id: self.id, format: crate::redb::FORMAT, url: "memory:".to_owned(), role: Role::Owner }
    }
}
