//! Heads and lists, derived from the records: the newest in memory, the rest in tables.
//!
//! A record says which head it makes of its stream and what the stream is listed under, so the tables of heads
//! and lists need not be written with every commit. They know what was stored up to a record that META names
//! ([`Known::indexed`]); what came later is the [`Tail`], which is read from the records themselves when the
//! ledger is opened. META also says with every commit which record is the last, and how many there are: a
//! record that is gone, or was put behind the others, is found as it would be by a head. Tables and name change in one transaction, and a stream that moved on within the tail is written
//! once, not once a record. Whoever looks must look into the tail first, then into a snapshot that is not
//! older: a head leaves the tail only in the commit that puts it into the table.

use std::collections::{BTreeMap, HashMap, VecDeque};

use redb::{ReadableTable, ReadableTableMetadata};

use super::reads::{self, BY_STATE, HEADS, META, RECORDS, listing, storage};
use crate::commit::{Entry, Head};
use crate::record::{self, Reader, Row};
use crate::{LedgerError, StateTag, StreamId, StreamKind};

/// The name of [`Known`] in META.
const KNOWN: &str = "known";
/// So many records are read when a ledger is opened, a few milliseconds, before the tables are brought up to
/// date; then only to the half, since the newest streams are those that move on. Few in the tests of this crate:
/// every simulated crash and flipped bit meets tables that were just written.
pub(super) const TAIL_RECORDS_MAX: u64 = if cfg!(test) { 8 } else { 4_096 };
/// How far back in a stream an append that was asked again is looked for.
const LOOK_BACK_RECORDS: usize = 256;

/// A record's number and digest.
pub(super) type Named = (u64, [u8; 32]);

/// What META says of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The last record that the tables of heads and lists know.
    pub(super) indexed: u64,
    /// How many records were removed: so many are missing of those that were numbered.
    pub(super) forgotten: u64,
    /// The last record.
    pub(super) last: Named,
}

impl Known {
    /// Reads it; a ledger of the format before has none.
    pub(super) fn read(meta: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Option<Known>, LedgerError> {
        let Some(bytes) = reads::meta(meta, KNOWN)? else { return Ok(None) };
        let mut from = Reader(&bytes);
        let mut number = || from.array().map(u64::from_be_bytes);
        let (indexed, forgotten, seq) = (number()?, number()?, number()?);
        Ok(Some(Known { indexed, forgotten, last: (seq, from.array()?) }))
    }

    /// Says it, as part of a transaction.
    pub(super) fn write(&self, transaction: &redb::WriteTransaction) -> Result<(), LedgerError> {
        let mut value = Vec::with_capacity(64);
        for number in [self.indexed, self.forgotten, self.last.0] {
            value.extend(number.to_be_bytes());
        }
        value.extend(self.last.1);
        let end = record::guard(&value);
        value.extend(end);
        let mut meta = transaction.open_table(META).map_err(storage)?;
        meta.insert(KNOWN, value.as_slice()).map_err(storage)?;
        Ok(())
    }

    /// Refuses records that are not those it says.
    pub(super) fn check<T>(&self, records: &T) -> Result<(), LedgerError>
    where
        T: ReadableTable<u64, &'static [u8]> + ReadableTableMetadata,
    {
        let (seq, digest) = self.last;
        let there = records.len().map_err(storage)?;
        if last(records)? != seq || there.checked_add(self.forgotten) != Some(seq) {
            let forgotten = self.forgotten;
            return Err(LedgerError::damaged(format!(
                "{there} records are there and {forgotten} were removed, of {seq} that were numbered"
            )));
        }
        if reads::row(records, seq)?.digest != digest {
            return Err(LedgerError::damaged(format!("record {seq} is not the one that was the last")));
        }
        Ok(())
    }
}

/// The number of the last record.
pub(super) fn last(records: &impl ReadableTable<u64, &'static [u8]>) -> Result<u64, LedgerError> {
    let last = records.last().map_err(storage)?;
    last.map(|(seq, _)| seq.value()).ok_or_else(|| LedgerError::damaged("it has no records, not even its first"))
}

/// The heads of streams that were appended to since the tables were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    /// The last record that the tables know.
    pub(super) indexed: u64,
    heads: HashMap<StreamId, Head>,
}

impl Tail {
    /// Reads it from the records behind `indexed`, and the last one that the marker must name.
    pub(super) fn read(
        records: &impl ReadableTable<u64, &'static [u8]>,
        indexed: u64,
    ) -> Result<(Tail, Option<Named>), LedgerError> {
        let mut tail = Tail { indexed, heads: HashMap::new() };
        let mut marks = None;
        for entry in records.range(indexed.saturating_add(1)..).map_err(storage)? {
            let (seq, value) = entry.map_err(storage)?;
            let (row, _) = Row::front(seq.value(), value.value())?;
            if let Some(before) = tail.heads.get(&row.stream)
                && row.previous_seq != 0
                && (row.previous_seq, row.previous, row.version.wrapping_sub(1))
                    != (before.seq, before.digest, before.version)
            {
                return Err(LedgerError::damaged(format!("record {seq} does not follow", seq = row.seq)));
            }
            let Row { version, seq, digest, state, balance, .. } = row;
            tail.heads.insert(row.stream, Head { version, seq, digest, state, balance });
            if row.marks {
                marks = Some((seq, digest));
            }
        }
        Ok((tail, marks))
    }

    pub(super) fn head(&self, stream: StreamId) -> Option<Head> {
        self.heads.get(&stream).copied()
    }

    /// What every stream in it is listed under.
    pub(super) fn states(&self) -> BTreeMap<StreamId, Option<StateTag>> {
        self.heads.iter().map(|(stream, head)| (*stream, head.state)).collect()
    }

    /// How far the tables must be brought up to date by a commit that ends with this record, if they must;
    /// never past a record that the marker still has to name: the tail is where the next owner finds it.
    pub(super) fn due(&self, last: u64, unmarked: Option<u64>) -> Option<u64> {
        if !self.is_long(last) {
            return None;
        }
        let until = last - TAIL_RECORDS_MAX / 2;
        let until = unmarked.map_or(until, |seq| until.min(seq - 1));
        (until > self.indexed).then_some(until)
    }

    /// Whether the tables are far behind this record.
    pub(super) fn is_long(&self, last: u64) -> bool {
        last.saturating_sub(self.indexed) > TAIL_RECORDS_MAX
    }

    /// The heads of streams that have not moved on since this record, together with those of the commit under
    /// way, in the order of their keys.
    pub(super) fn heads_until(&self, until: u64, fresh: &HashMap<StreamId, Head>) -> Vec<(StreamId, Head)> {
        let older = self.heads.iter().filter(|(stream, _)| !fresh.contains_key(stream));
        let mut due: Vec<(StreamId, Head)> =
            older.chain(fresh).filter(|(_, head)| head.seq <= until).map(|(stream, head)| (*stream, *head)).collect();
        due.sort_unstable_by_key(|(stream, _)| *stream);
        due
    }

    /// What was committed: these heads, and the tables up to a record.
    pub(super) fn committed(&mut self, fresh: HashMap<StreamId, Head>, indexed: Option<u64>) {
        self.heads.extend(fresh);
        if let Some(indexed) = indexed {
            self.indexed = indexed;
            self.heads.retain(|_, head| head.seq > indexed);
        }
    }
}

/// Whether a stream is in the table of lists. Most effects end as done: those are found among the heads,
/// where they stand anyway.
fn is_listed(stream: StreamId, state: StateTag) -> bool {
    stream.kind != StreamKind::Effect || state != StateTag::Done
}

/// The tables of one write transaction.
pub(super) struct Tables<'t> {
    pub(super) records: redb::Table<'t, u64, &'static [u8]>,
    heads: redb::Table<'t, &'static [u8], &'static [u8]>,
    by_state: redb::Table<'t, &'static [u8], &'static [u8]>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t redb::WriteTransaction) -> Result<Tables<'t>, LedgerError> {
        Ok(Tables {
            records: transaction.open_table(RECORDS).map_err(storage)?,
            heads: transaction.open_table(HEADS).map_err(storage)?,
            by_state: transaction.open_table(BY_STATE).map_err(storage)?,
        })
    }
}

impl Tables<'_> {
    /// The head of a stream, as far as the tables know.
    pub(super) fn head(&self, stream: StreamId) -> Result<Option<Head>, LedgerError> {
        reads::head(&self.heads, stream)
    }

    /// Stores a record.
    pub(super) fn insert(&mut self, entry: &Entry, row: &[u8]) -> Result<(), LedgerError> {
        self.records.insert(entry.after.seq, row).map_err(storage)?;
        Ok(())
    }

    /// Brings the tables up to date with these heads.
    pub(super) fn index(&mut self, heads: &[(StreamId, Head)]) -> Result<(), LedgerError> {
        for (stream, head) in heads {
            let (key, value) = (stream.to_bytes(), head.encode());
            let before = self.heads.insert(key.as_slice(), value.as_slice()).map_err(storage)?;
            let before = before.map(|before| Head::decode(*stream, before.value())).transpose()?;
            self.list(*stream, before.and_then(|head| head.state), head.state)?;
        }
        Ok(())
    }

    fn list(&mut self, stream: StreamId, before: Option<StateTag>, after: Option<StateTag>) -> Result<(), LedgerError> {
        if before == after {
            return Ok(());
        }
        if let Some(state) = before.filter(|state| is_listed(stream, *state)) {
            self.by_state.remove(listing(state, stream).as_slice()).map_err(storage)?;
        }
        if let Some(state) = after.filter(|state| is_listed(stream, *state)) {
            let key = listing(state, stream);
            self.by_state.insert(key.as_slice(), record::guard(&key).as_slice()).map_err(storage)?;
        }
        Ok(())
    }

    /// Drops what an older format listed and this one finds among the heads.
    pub(super) fn unlist_done(&mut self) -> Result<(), LedgerError> {
        let of_effects = |kind: StreamKind| [StateTag::Done.code(), kind.code()];
        let (from, to) = (of_effects(StreamKind::Effect), [StateTag::Done.code(), StreamKind::Effect.code() + 1]);
        self.by_state.retain_in::<&[u8], _>(from.as_slice()..to.as_slice(), |_, _| false).map_err(storage)
    }

    /// How many records there are.
    pub(super) fn len(&self) -> Result<u64, LedgerError> {
        self.records.len().map_err(storage)
    }

    /// The versions of a stream that were stored with this nonce.
    pub(super) fn versions_with(
        &self,
        stream: StreamId,
        head: Option<Head>,
        nonce: [u8; 16],
    ) -> Result<VecDeque<u64>, LedgerError> {
        let mut versions = VecDeque::new();
        let Some(head) = head else { return Ok(versions) };
        let mut left = LOOK_BACK_RECORDS;
        reads::walk_back(&self.records, stream, &head, |row| {
            if row.nonce == Some(nonce) {
                versions.push_front(row.version);
            }
            left -= 1;
            left > 0
        })?;
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_never_pass_what_the_marker_must_still_name() {
        let tail = Tail { indexed: 100, heads: HashMap::new() };
        assert_eq!(tail.due(100 + TAIL_RECORDS_MAX, None), None);
        let last = 101 + TAIL_RECORDS_MAX;
        assert_eq!(tail.due(last, None), Some(last - TAIL_RECORDS_MAX / 2));
        assert_eq!(tail.due(last, Some(103)), Some(102));
        assert_eq!(tail.due(last, Some(101)), None);
    }
}
