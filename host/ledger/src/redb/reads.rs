//! Reading: short transactions, every record verified, a panic of the store turned into damage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::foreign::Foreign;
use super::index::{self, Known, Tail};
use super::marks::Marks;
use super::protocol::{Reply, Request};
use super::segments::Segments;
use crate::commit::Head;
use crate::record::{self, Row};
use crate::{LedgerError, PAGE_MAX, Record, StateTag, Stored, StreamId, StreamKind, Tip};

/// Record by sequence number.
pub(super) const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
/// Head by stream.
pub(super) const HEADS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("heads");
/// State code and stream; the value is a checksum of the key.
pub(super) const BY_STATE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("by_state");
/// Who the ledger is.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// A page of records is cut at so many bytes, so that it fits into a frame.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

type Readable = Arc<dyn ReadableDatabase + Send + Sync>;

/// A ledger that can be read, except while it is being opened again.
pub(crate) struct Reads {
    opened: RwLock<Option<Opened>>,
    segments: Segments,
    /// What other processes append through this one.
    pub(super) foreign: Foreign,
}

/// What is read while the ledger is open.
pub(super) struct Opened {
    pub(super) database: Readable,
    pub(super) newest: Newest,
    /// Of the process that owns it.
    pub(super) marks: Option<Marks>,
}

/// Where the heads are that the tables do not know yet.
pub(super) enum Newest {
    /// The committer keeps them.
    Shared(Arc<RwLock<Tail>>),
    /// Another process commits: they are read from the records, and kept while nothing is appended.
    Derived(Mutex<Option<(u64, Arc<Tail>)>>),
}

impl Opened {
    /// What `look` finds in the tail, and a snapshot that is not older.
    fn newest<T>(&self, look: impl FnOnce(&Tail) -> T) -> Result<(ReadTransaction, T), LedgerError> {
        match &self.newest {
            Newest::Shared(tail) => {
                let found = look(&tail.read().unwrap_or_else(PoisonError::into_inner));
                Ok((self.database.begin_read().map_err(storage)?, found))
            }
            Newest::Derived(kept) => {
                let transaction = self.database.begin_read().map_err(storage)?;
                let found = look(&*derive(&transaction, kept)?);
                Ok((transaction, found))
            }
        }
    }

    fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        let in_tail = |tail: &Tail| streams.iter().map(|stream| tail.head(*stream)).collect::<Vec<_>>();
        let (transaction, newest) = self.newest(in_tail)?;
        let heads = transaction.open_table(HEADS).map_err(storage)?;
        let tip = |head: Head| Tip { version: head.version, digest: head.digest };
        let ends = streams.iter().zip(newest).map(|(stream, newest)| match newest {
            Some(head) => Ok(Some(tip(head))),
            None => Ok(head(&heads, *stream)?.map(tip)),
        });
        ends.collect()
    }

    fn answer(&self, request: &Request) -> Result<Reply, LedgerError> {
        match request {
            Request::Read { stream } => {
                let (transaction, newest) = self.newest(|tail| tail.head(*stream))?;
                read(&transaction, *stream, newest).map(Reply::Records)
            }
            Request::Scan { from_seq, limit } => {
                let transaction = self.database.begin_read().map_err(storage)?;
                scan(&transaction, *from_seq, *limit).map(Reply::Records)
            }
            Request::List { state, after, limit } => {
                let (transaction, newer) = self.newest(Tail::states)?;
                list(&transaction, &newer, *state, *after, *limit).map(Reply::Streams)
            }
            Request::Hello { .. }
            | Request::Append { .. }
            | Request::Load { .. }
            | Request::Forget { .. }
            | Request::Marked => Err(LedgerError::Invalid { why: "that is not a question".to_owned() }),
        }
    }
}

impl Reads {
    /// Of a ledger that another process appends to, or nobody.
    pub(super) fn new(database: Readable, segments: Segments) -> Reads {
        Reads::of(Opened { database, newest: Newest::Derived(Mutex::default()), marks: None }, segments)
    }

    /// Of a ledger that is open in this process.
    pub(super) fn of(opened: Opened, segments: Segments) -> Reads {
        Reads { opened: RwLock::new(Some(opened)), segments, foreign: Foreign::default() }
    }

    /// Lets go of the database, after the reads under way.
    pub(super) fn close(&self) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reads from this one from now on.
    pub(super) fn reopened(&self, opened: Opened) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> Option<Marks> {
        self.opened.read().unwrap().as_ref().and_then(|opened| opened.marks.clone())
    }

    /// Answers anything but an append.
    pub(super) fn answer(&self, request: &Request) -> Result<Reply, LedgerError> {
        if let Request::Load { bytes } = request {
            return self.load(bytes).map(Reply::Bytes);
        }
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = &*opened else { return Err(being_opened()) };
        if matches!(request, Request::Marked) {
            let marks = opened.marks.as_ref();
            return marks.ok_or_else(being_opened)?.marked().map(|()| Reply::Marked);
        }
        undamaged(|| opened.answer(request))
    }

    /// The ends of these streams, in one transaction.
    pub(super) fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = &*opened else { return Err(being_opened()) };
        undamaged(|| opened.tips(streams))
    }

    fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        match bytes {
            Stored::Inline(bytes) => Ok(bytes.clone()),
            Stored::Segment { file, offset, len, digest } => self.segments.load(*file, *offset, *len, digest),
            Stored::Gone { digest, .. } => Err(LedgerError::Gone { digest: crate::hex(digest) }),
            Stored::Private(_) => Err(crate::private::not_here()),
        }
    }
}

fn being_opened() -> LedgerError {
    LedgerError::unavailable("it is being opened again after a failure")
}

/// A value of META, verified.
pub(super) fn meta(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let stored = meta.get(name).map_err(storage)?;
    stored.map(|stored| record::guarded(name, stored.value()).map(<[u8]>::to_vec)).transpose()
}

/// The tail of a snapshot.
fn derive(transaction: &ReadTransaction, kept: &Mutex<Option<(u64, Arc<Tail>)>>) -> Result<Arc<Tail>, LedgerError> {
    let records = transaction.open_table(RECORDS).map_err(storage)?;
    let known = Known::read(&transaction.open_table(META).map_err(storage)?)?;
    let (indexed, last) = match known {
        Some(known) => (known.indexed, known.last.0),
        None => (index::last(&records)?, index::last(&records)?),
    };
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, tail)) = &*lock()
        && *at == last
        && tail.indexed == indexed
    {
        return Ok(Arc::clone(tail));
    }
    if let Some(known) = known {
        known.check(&records)?;
    }
    let tail = Arc::new(Tail::read(&records, indexed)?.0);
    *lock() = Some((last, Arc::clone(&tail)));
    Ok(tail)
}

/// redb panics on some damaged pages; that is damage, not a reason to stop the process.
pub(super) fn undamaged<T>(work: impl FnOnce() -> Result<T, LedgerError>) -> Result<T, LedgerError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(LedgerError::damaged("a page could not be read at all")))
}

/// An error of redb, by what it means for the ledger.
pub(super) fn storage(error: impl Into<redb::Error>) -> LedgerError {
    match error.into() {
        redb::Error::Corrupted(why) => LedgerError::damaged(why),
        // A file that ends before its layout does was cut.
        redb::Error::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
        {
            LedgerError::damaged(error)
        }
        redb::Error::Io(error) => LedgerError::io("the ledger's file", &error),
        error @ (redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. }) => {
            LedgerError::damaged(error)
        }
        error => LedgerError::unavailable(error),
    }
}

/// The head of a stream.
pub(super) fn head(
    heads: &impl ReadableTable<&'static [u8], &'static [u8]>,
    stream: StreamId,
) -> Result<Option<Head>, LedgerError> {
    let key = stream.to_bytes();
    let found = heads.get(key.as_slice()).map_err(storage)?;
    found.map(|value| Head::decode(stream, value.value())).transpose()
}

/// One record by its number.
pub(super) fn row(records: &impl ReadableTable<u64, &'static [u8]>, seq: u64) -> Result<Row, LedgerError> {
    match records.get(seq).map_err(storage)? {
        Some(value) => Row::decode(seq, value.value()),
        None => Err(LedgerError::damaged(format!("record {seq} is missing"))),
    }
}

/// The rows of a stream from its head back, each the one that the next says it follows.
pub(super) fn walk_back(
    records: &impl ReadableTable<u64, &'static [u8]>,
    stream: StreamId,
    head: &Head,
    mut wanted: impl FnMut(Row) -> bool,
) -> Result<(), LedgerError> {
    let (mut seq, mut version, mut digest) = (head.seq, head.version, head.digest);
    loop {
        let row = row(records, seq)?;
        if row.stream != stream || row.version != version || row.digest != digest {
            return Err(LedgerError::damaged(format!("record {seq} is not version {version} of {stream}")));
        }
        (seq, version, digest) = (row.previous_seq, row.version - 1, row.previous);
        if !wanted(row) || seq == 0 {
            break;
        }
    }
    Ok(())
}

fn read(transaction: &ReadTransaction, stream: StreamId, newest: Option<Head>) -> Result<Vec<Record>, LedgerError> {
    let found = match newest {
        Some(head) => Some(head),
        None => head(&transaction.open_table(HEADS).map_err(storage)?, stream)?,
    };
    let Some(head) = found else { return Ok(Vec::new()) };
    let records = transaction.open_table(RECORDS).map_err(storage)?;
    let mut rows = Vec::new();
    walk_back(&records, stream, &head, |row| {
        rows.push(row);
        true
    })?;
    let read: Vec<Record> = rows.into_iter().rev().map(Row::into_record).collect::<Result<_, _>>()?;
    match read.first() {
        Some(first) if first.version == 1 || first.event.may_begin() => Ok(read),
        _ => Err(LedgerError::damaged(format!("{stream} does not begin at its beginning"))),
    }
}

fn scan(transaction: &ReadTransaction, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
    let records = transaction.open_table(RECORDS).map_err(storage)?;
    let mut page = Vec::new();
    let mut bytes = 0;
    for entry in records.range(from_seq..).map_err(storage)?.take(limit.min(PAGE_MAX)) {
        let (seq, value) = entry.map_err(storage)?;
        bytes += value.value().len();
        page.push(Row::decode(seq.value(), value.value())?.into_record()?);
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(page)
}

/// The key under which a stream is listed.
pub(super) fn listing(state: StateTag, stream: StreamId) -> [u8; 34] {
    let mut key = [0; 34];
    key[0] = state.code();
    key[1..].copy_from_slice(&stream.to_bytes());
    key
}

/// Streams in a state, after `after`: what the tables say, unless the tail knows something newer.
fn list(
    transaction: &ReadTransaction,
    newer: &BTreeMap<StreamId, Option<StateTag>>,
    state: StateTag,
    after: Option<StreamId>,
    limit: usize,
) -> Result<Vec<StreamId>, LedgerError> {
    let limit = limit.min(PAGE_MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let from = after.map_or(Unbounded, Excluded);
    let moved = newer.range((from, Unbounded)).filter(|(_, now)| **now == Some(state));
    // Of each source as many as are wanted of all: the first of them together are the first of all.
    let mut streams: BTreeSet<StreamId> = moved.map(|(stream, _)| *stream).take(limit).collect();
    let unmoved = |stream: &StreamId| !newer.contains_key(stream);
    streams.extend(listed(transaction, state, after, limit, unmoved)?);
    if state == StateTag::Done {
        streams.extend(done_effects(transaction, after, limit, unmoved)?);
    }
    Ok(streams.into_iter().take(limit).collect())
}

fn listed(
    transaction: &ReadTransaction,
    state: StateTag,
    after: Option<StreamId>,
    limit: usize,
    wanted: impl Fn(&StreamId) -> bool,
) -> Result<Vec<StreamId>, LedgerError> {
    let listed = transaction.open_table(BY_STATE).map_err(storage)?;
    let first = [state.code()];
    let last = [state.code() + 1];
    let after = after.map(|stream| listing(state, stream));
    let from = after.as_ref().map_or(Included(first.as_slice()), |key| Excluded(key.as_slice()));
    let mut streams = Vec::new();
    for entry in listed.range::<&[u8]>((from, Excluded(last.as_slice()))).map_err(storage)? {
        let (key, value) = entry.map_err(storage)?;
        let stream = key.value().get(1..).and_then(StreamId::from_bytes);
        match stream {
            Some(stream) if record::guard(key.value()) == value.value() => streams.push(stream),
            _ => {
                return Err(LedgerError::damaged(format!("an entry in the list of {state}")));
            }
        }
        if !streams.last().is_some_and(&wanted) {
            streams.pop();
        }
        if streams.len() == limit {
            break;
        }
    }
    Ok(streams)
}

/// Effects that ended as most do are not listed a second time: their heads say so.
fn done_effects(
    transaction: &ReadTransaction,
    after: Option<StreamId>,
    limit: usize,
    wanted: impl Fn(&StreamId) -> bool,
) -> Result<Vec<StreamId>, LedgerError> {
    let heads = transaction.open_table(HEADS).map_err(storage)?;
    let (first, last) = ([StreamKind::Effect.code()], [StreamKind::Effect.code() + 1]);
    let after = after.map(StreamId::to_bytes);
    let from = match &after {
        Some(key) if key.as_slice() >= first.as_slice() => Excluded(key.as_slice()),
        _ => Included(first.as_slice()),
    };
    if after.is_some_and(|key| key.as_slice() >= last.as_slice()) {
        return Ok(Vec::new());
    }
    let mut streams = Vec::new();
    for entry in heads.range::<&[u8]>((from, Excluded(last.as_slice()))).map_err(storage)? {
        let (key, value) = entry.map_err(storage)?;
        let named = StreamId::from_bytes(key.value());
        let stream = named.ok_or_else(|| LedgerError::damaged("the name of a head"))?;
        let head = Head::decode(stream, value.value())?;
        if head.state == Some(StateTag::Done) && wanted(&stream) {
            streams.push(stream);
        }
        if streams.len() == limit {
            break;
        }
    }
    Ok(streams)
}
