//! Reading: short transactions, every record verified, a panic of the store turned into damage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::foreign::Foreign;
use super::protocol::{Reply, Request};
use super::segments::Segments;
use crate::commit::Head;
use crate::record::{self, Row};
use crate::{LedgerError, PAGE_MAX, Record, StateTag, Stored, StreamId, Tip};

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
    database: RwLock<Option<Readable>>,
    segments: Segments,
    /// What other processes append through this one.
    pub(super) foreign: Foreign,
}

impl Reads {
    pub(super) fn new(database: Readable, segments: Segments) -> Reads {
        Reads { database: RwLock::new(Some(database)), segments, foreign: Foreign::default() }
    }

    /// Lets go of the database, after the reads under way.
    pub(super) fn close(&self) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reads from this one from now on.
    pub(super) fn reopened(&self, database: Readable) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Some(database);
    }

    /// Answers anything but an append.
    pub(super) fn answer(&self, request: &Request) -> Result<Reply, LedgerError> {
        if let Request::Load { bytes } = request {
            return self.load(bytes).map(Reply::Bytes);
        }
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else {
            return Err(LedgerError::unavailable("it is being opened again after a failure"));
        };
        undamaged(|| {
            let transaction = database.begin_read().map_err(storage)?;
            match request {
                Request::Read { stream } => read(&transaction, *stream).map(Reply::Records),
                Request::Scan { from_seq, limit } => scan(&transaction, *from_seq, *limit).map(Reply::Records),
                Request::List { state, after, limit } => list(&transaction, *state, *after, *limit).map(Reply::Streams),
                Request::Hello { .. } | Request::Append { .. } | Request::Load { .. } | Request::Forget { .. } => {
                    Err(LedgerError::Invalid { why: "that is not a question".to_owned() })
                }
            }
        })
    }

    /// The ends of these streams, in one transaction.
    pub(super) fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else {
            return Err(LedgerError::unavailable("it is being opened again after a failure"));
        };
        undamaged(|| {
            let transaction = database.begin_read().map_err(storage)?;
            let heads = transaction.open_table(HEADS).map_err(storage)?;
            let tip = |head: Head| Tip { version: head.version, digest: head.digest };
            streams.iter().map(|stream| Ok(head(&heads, *stream)?.map(tip))).collect()
        })
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

fn read(transaction: &ReadTransaction, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
    let heads = transaction.open_table(HEADS).map_err(storage)?;
    let Some(head) = head(&heads, stream)? else {
        return Ok(Vec::new());
    };
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

fn list(
    transaction: &ReadTransaction,
    state: StateTag,
    after: Option<StreamId>,
    limit: usize,
) -> Result<Vec<StreamId>, LedgerError> {
    use std::ops::Bound::{Excluded, Included};
    let listed = transaction.open_table(BY_STATE).map_err(storage)?;
    let first = [state.code()];
    let last = [state.code() + 1];
    let after = after.map(|stream| listing(state, stream));
    let from = after.as_ref().map_or(Included(first.as_slice()), |key| Excluded(key.as_slice()));
    let mut streams = Vec::new();
    for entry in listed.range::<&[u8]>((from, Excluded(last.as_slice()))).map_err(storage)?.take(limit.min(PAGE_MAX)) {
        let (key, value) = entry.map_err(storage)?;
        let stream = key.value().get(1..).and_then(StreamId::from_bytes);
        match stream {
            Some(stream) if record::guard(key.value()) == value.value() => streams.push(stream),
            _ => {
                return Err(LedgerError::damaged(format!("an entry in the list of {state}")));
            }
        }
    }
    Ok(streams)
}
