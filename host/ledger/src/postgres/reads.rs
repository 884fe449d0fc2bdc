//! Reading, each answer from one statement and so from one moment; every record verified.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Row as Line;
use tokio_postgres::types::ToSql;

use super::link::{Failure, Link, Use};
use super::plan;
use super::target::Target;
use crate::commit::Head;
use crate::record::Row;
use crate::{LedgerError, Record, StateTag, Stored, StreamId, hex, sha256};

/// How often a question is asked again over a new connection.
const TRIES_MAX: usize = 3;

/// A stream with its head, its records, and those of their places that are given already.
const READ: &str = "SELECT h.version, h.head, r.version, r.moment, r.body, p.seq, m.next_place
    FROM oncegate_head h JOIN oncegate_meta m ON m.one = 1
    LEFT JOIN oncegate_record r ON r.stream = h.stream
    LEFT JOIN oncegate_place p ON p.stream = r.stream AND p.version = r.version
    WHERE h.stream = $1 ORDER BY r.version";
const SCAN: &str = "SELECT p.seq, p.stream, p.version, r.moment, r.body FROM oncegate_place p
    LEFT JOIN oncegate_record r ON r.stream = p.stream AND r.version = p.version
    WHERE p.seq >= $1 ORDER BY p.seq LIMIT $2";
const LIST: &str = "SELECT stream, head FROM oncegate_head WHERE state = $1 AND stream > $2 ORDER BY stream LIMIT $3";
const LOAD: &str = "SELECT body FROM oncegate_bytes WHERE id = $1 ORDER BY part";

/// Where questions are asked, over one connection that is opened again when it is lost.
pub(super) struct Reads {
    target: Arc<Target>,
    link: Mutex<Option<Arc<Link>>>,
}

impl Reads {
    pub(super) fn new(target: Arc<Target>) -> Reads {
        Reads { target, link: Mutex::default() }
    }

    /// An open connection.
    pub(super) async fn link(&self) -> Result<Arc<Link>, LedgerError> {
        let open = self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(link) = open.filter(|link| !link.is_closed()) {
            return Ok(link);
        }
        let link = Arc::new(Link::open(&self.target, Use::Read).await?);
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Lets go of a connection that did not answer, unless another was opened meanwhile.
    fn lost(&self, link: &Arc<Link>) {
        let mut open = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, link)) {
            *open = None;
        }
    }

    /// Asks, and again where the connection was lost: nothing is changed by it.
    pub(super) async fn ask(
        &self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Line>, LedgerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let link = self.link().await?;
            match link.run(sql, values).await {
                Ok(rows) => return Ok(rows),
                Err(Failure::Lost(why)) => {
                    self.lost(&link);
                    if tries == TRIES_MAX {
                        return Err(LedgerError::unavailable(why));
                    }
                }
                Err(Failure::Again) if tries < TRIES_MAX => {}
                Err(failure) => return Err(failure.of_reading()),
            }
        }
    }

    pub(super) async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        let rows = self.ask(READ, &[&stream.to_bytes().as_slice()]).await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let head = head(stream, field(first, 0)?, field(first, 1)?)?;
        let Some(head) = head else { return Ok(Vec::new()) };
        let next_place = number(field(first, 6)?)?;
        let mut records = Vec::with_capacity(rows.len());
        let mut unplaced = 0;
        for row in &rows {
            let body: Option<&[u8]> = field(row, 4)?;
            let Some(body) = body else { break };
            let mut record = record(stream, field(row, 2)?, field(row, 3)?, body)?;
            record.seq = match field::<Option<i64>>(row, 5)? {
                Some(seq) => number(seq)?,
                // Not above the place that it gets: those before it in the stream go before it.
                None => {
                    unplaced += 1;
                    next_place + unplaced - 1
                }
            };
            records.push(record);
        }
        whole(stream, &head, &records)?;
        Ok(records)
    }

    /// Records that have their place. `Err` where one is missing.
    pub(super) async fn scan(&self, from: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        let (from, limit) = (i64::try_from(from).unwrap_or(i64::MAX), limit as i64);
        let rows = self.ask(SCAN, &[&from, &limit]).await?;
        let mut page = Vec::with_capacity(rows.len());
        for row in &rows {
            let seq = number(field(row, 0)?)?;
            let missing = || LedgerError::damaged(format!("record {seq} is missing"));
            let stream = StreamId::from_bytes(field(row, 1)?).ok_or_else(missing)?;
            let body = field::<Option<&[u8]>>(row, 4)?.ok_or_else(missing)?;
            let mut record = record(stream, field(row, 2)?, field(row, 3)?, body)?;
            record.seq = seq;
            page.push(record);
        }
        Ok(page)
    }

    pub(super) async fn list(
        &self,
        state: StateTag,
        after: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<StreamId>, LedgerError> {
        let damaged = || LedgerError::damaged(format!("an entry in the list of {state}"));
        let after = after.map(|stream| stream.to_bytes().to_vec()).unwrap_or_default();
        let rows = self.ask(LIST, &[&i16::from(state.code()), &after, &(limit as i64)]).await?;
        let mut streams = Vec::with_capacity(rows.len());
        for row in &rows {
            let stream = StreamId::from_bytes(field(row, 0)?).ok_or_else(damaged)?;
            let head = field::<Option<&[u8]>>(row, 1)?.ok_or_else(damaged)?;
            if Head::decode(stream, head)?.state != Some(state) {
                return Err(damaged());
            }
            streams.push(stream);
        }
        Ok(streams)
    }

    pub(super) async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        let (id, len, digest) = match bytes {
            Stored::Inline(bytes) => return Ok(bytes.clone()),
            Stored::Gone { digest, .. } => return Err(LedgerError::Gone { digest: hex(digest) }),
            Stored::Private(_) => return Err(crate::private::not_here()),
            Stored::Segment { file, offset, len, digest } => (plan::name(*file, *offset), *len, digest),
        };
        let mut whole = Vec::new();
        for row in &self.ask(LOAD, &[&id.as_slice()]).await? {
            whole.extend_from_slice(field(row, 0)?);
        }
        if whole.len() as u64 != len || sha256(&whole) != *digest {
            return Err(LedgerError::damaged(format!("{len} bytes are not those of sha256:{}", hex(digest))));
        }
        Ok(whole)
    }
}

/// A column that our own statement asks for.
pub(super) fn field<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Line, at: usize) -> Result<T, LedgerError> {
    row.try_get(at).map_err(|error| LedgerError::damaged(format!("a column of the tables: {error}")))
}

pub(super) fn number(value: i64) -> Result<u64, LedgerError> {
    u64::try_from(value).map_err(|_| LedgerError::damaged("a number in the tables is below nothing"))
}

/// What a line of the table of heads says; none for a stream that was only asked about.
pub(super) fn head(stream: StreamId, version: i64, stored: Option<&[u8]>) -> Result<Option<Head>, LedgerError> {
    let head = stored.map(|stored| Head::decode(stream, stored)).transpose()?;
    if head.map_or(0, |head| head.version) != number(version)? {
        return Err(LedgerError::damaged(format!("the head of {stream} is not at its version")));
    }
    Ok(head)
}

/// The record that is stored at this version; its number is still its moment.
fn record(stream: StreamId, version: i64, moment: i64, body: &[u8]) -> Result<Record, LedgerError> {
    let row = Row::decode(number(moment)?, body)?;
    if row.stream != stream || row.version != number(version)? {
        return Err(LedgerError::damaged(format!("a record of {stream} is stored in the place of another")));
    }
    row.into_record()
}

/// The records of a stream follow one another from its beginning to its head.
fn whole(stream: StreamId, head: &Head, records: &[Record]) -> Result<(), LedgerError> {
    let damaged = |why: &str| Err(LedgerError::damaged(format!("{stream} {why}")));
    match records.first() {
        Some(first) if (first.version == 1 && first.previous == [0; 32]) || first.event.may_begin() => {}
        _ => return damaged("does not begin at its beginning"),
    }
    for pair in records.windows(2) {
        if pair[1].version != pair[0].version + 1 || pair[1].previous != pair[0].digest {
            return damaged("has a record that does not follow the one before it");
        }
    }
    match records.last() {
        Some(last) if last.version == head.version && last.digest == head.digest => Ok(()),
        _ => damaged("does not end at its head"),
    }
}
