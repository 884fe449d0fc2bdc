//! Moves a ledger with its whole history into a database: the same id, records, numbers and digests.
//!
//! The tables are closed to hosts until all is there. What was interrupted is asked for again and goes on where it
//! stopped. Only when the copy is verified is the source sealed; what came into it meanwhile, the seal last, is
//! copied then, and the two are compared once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::link::{Failure, Link, Use};
use super::plan::{self, Part};
use super::reads::{field, number};
use super::schema::{self, Meta};
use super::session::WRITE_PARTS;
use super::{PostgresLedger, shared, target};
use crate::commit::{self, Head};
use crate::record::{Location, Row};
use crate::verify::{self, Checkpoint};
use crate::{
    Append, Event, Expect, Ledger, LedgerError, PAGE_MAX, Record, Role, StateTag, Stored, StreamId, StreamKind,
};

/// Large bytes of one statement.
const STATEMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// A page of records with their numbers; it moves the counter from where it must be.
const COPY: &str = "WITH moved AS (
        UPDATE oncegate_meta SET next_place = $2::bigint WHERE one = 1 AND filling AND next_place = $1::bigint
        RETURNING one),
    records AS (
        INSERT INTO oncegate_record (stream, version, moment, body)
        SELECT stream, version, seq, body
        FROM unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[]) AS new (stream, version, seq, body)
        RETURNING version),
    places AS (
        INSERT INTO oncegate_place (seq, stream, version)
        SELECT seq, stream, version
        FROM unnest($3::bytea[], $4::bigint[], $5::bigint[]) AS new (stream, version, seq) RETURNING seq)
    SELECT 1 / CASE WHEN (SELECT count(*) FROM moved) = 1 THEN 1 ELSE 0 END";
const HEADS: &str = "INSERT INTO oncegate_head (stream, version, based, head, state)
    SELECT stream, version, 0, head, state
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::smallint[]) AS new (stream, version, head, state)
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, head = excluded.head, state = excluded.state";
const NEXT: &str = "SELECT next_place FROM oncegate_meta WHERE one = 1";
const OPEN: &str = "UPDATE oncegate_meta SET filling = false WHERE one = 1";

/// Who moves a ledger, why, and when.
#[derive(Clone, Debug)]
pub struct Move {
    /// The person.
    pub actor: String,
    /// Their reason.
    pub reason: String,
    /// The stamp of the seal.
    pub at: u64,
}

/// The ends of the source's streams.
type Ends = BTreeMap<StreamId, (u64, [u8; 32], u64)>;

/// Moves the ledger `from`, as it is stored, to an empty database (or one that an interrupted move began to fill),
/// seals it and opens what it became. `progress` hears how many records are there.
///
/// # Errors
/// `Exists` when another ledger is there. `Damaged` when either does not verify: the source is not sealed then. A
/// failure of either ledger; asking again goes on.
pub async fn migrate(
    from: &dyn Ledger,
    url: &str,
    by: &Move,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(PostgresLedger, Checkpoint), LedgerError> {
    let target = target(url).await?;
    let link = Link::open(&target, Use::Write).await?;
    let meta = begin(&link, &target.shown, from.identity().id).await?;
    let mut copy = Copy { from, link, ends: Ends::new(), touched: BTreeSet::new(), next: 0 };
    let reader = PostgresLedger::with(&target, meta, rand::random(), Vec::new());
    copy.all(progress).await?;
    let report = verify::verify(&reader).await?;
    if let Some(problem) = report.problems.first() {
        return Err(LedgerError::damaged(format!("the copy does not verify: {}", problem.what)));
    }
    seal(from, &target.shown, by).await?;
    copy.all(progress).await?;
    let moved = verify::checkpoint(&reader).await?;
    if moved != verify::checkpoint(from).await? {
        return Err(LedgerError::damaged("the copy is not what the source is"));
    }
    copy.link.run(OPEN, &[]).await.map_err(Failure::of_reading)?;
    let shared = shared(&target, meta.id);
    let ledger = PostgresLedger::start(Arc::clone(&target), meta, shared).await?;
    Ok((ledger, moved))
}

/// Makes closed tables for the ledger with this id, or finds those that were begun for it.
async fn begin(link: &Link, at: &str, id: [u8; 16]) -> Result<Meta, LedgerError> {
    match schema::meta(link, at).await {
        Err(LedgerError::Missing { .. }) => {}
        Ok(meta) if meta.filling && meta.id == id => return Ok(meta),
        Ok(_) => return Err(LedgerError::Exists { at: at.to_owned() }),
        Err(error) => return Err(error),
    }
    schema::create_to_fill(link, at, id).await?;
    schema::meta(link, at).await
}

/// Seals the source, or finds that it was sealed for this move.
async fn seal(from: &dyn Ledger, to: &str, by: &Move) -> Result<(), LedgerError> {
    let records = from.read(StreamId::ledger()).await?;
    if let Some(Event::LedgerSealed { to: before, .. }) = records.last().map(|record| &record.event) {
        let at = from.identity().url;
        return if before == to { Ok(()) } else { Err(LedgerError::Sealed { at, to: Some(before.clone()) }) };
    }
    if from.identity().role == Role::Reader {
        return Err(LedgerError::unavailable("the source was opened for reading only and is not sealed"));
    }
    let (actor, reason) = (by.actor.clone(), by.reason.clone());
    let event = Event::LedgerSealed { to: to.to_owned(), actor, reason, at: by.at };
    from.append(vec![Append::new(StreamId::ledger(), Expect::Any, event)]).await.map(drop)
}

struct Copy<'a> {
    from: &'a dyn Ledger,
    link: Link,
    ends: Ends,
    /// Streams whose heads are to be written.
    touched: BTreeSet<StreamId>,
    /// The source is read up to here.
    next: u64,
}

impl Copy<'_> {
    /// Everything that is not there yet, and the heads.
    async fn all(&mut self, progress: &mut (dyn FnMut(u64) + Send)) -> Result<(), LedgerError> {
        let rows = self.link.run(NEXT, &[]).await.map_err(Failure::of_reading)?;
        let mut there = rows.first().map_or(Ok(1), |row| number(field(row, 0)?))?;
        loop {
            let page = self.from.scan(self.next, PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            self.next = last.seq + 1;
            for record in &page {
                self.ends.insert(record.stream, (record.version, record.digest, record.seq));
                self.touched.insert(record.stream);
            }
            let new: Vec<Record> = page.into_iter().filter(|record| record.seq >= there).collect();
            there = self.page(new, there).await?;
            progress(there.saturating_sub(1));
        }
        self.heads().await
    }

    async fn page(&self, records: Vec<Record>, mut there: u64) -> Result<u64, LedgerError> {
        let (mut rows, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0);
        for mut record in records {
            bytes += record.event.stored_mut().iter().map(|stored| stored.len()).sum::<u64>();
            rows.push(self.row(record, &mut parts).await?);
            if bytes >= STATEMENT_BYTES_MAX {
                there = self.store(std::mem::take(&mut rows), std::mem::take(&mut parts), there).await?;
                bytes = 0;
            }
        }
        self.store(rows, parts, there).await
    }

    /// The record as it is stored here. Its number is its moment as well: it rises along each stream.
    async fn row(&self, mut record: Record, parts: &mut Vec<Part>) -> Result<Row, LedgerError> {
        let mut locations = Vec::new();
        for (place, stored) in (0_u16..).zip(record.event.stored_mut()) {
            if matches!(stored, Stored::Segment { .. }) {
                let id: [u8; 16] = rand::random();
                let whole = self.from.load(stored).await?;
                parts.extend(plan::parts(id, &whole));
                let [file, offset] = plan::halves(id);
                locations.push(Location { place, file, offset });
            }
        }
        let Record { seq, stream, version, digest, previous, sealed, .. } = record;
        // Heads have a table of their own here, and marks lie on the machines.
        let (state, balance, marks, nonce) = (None, None, false, None);
        let event = sealed;
        Ok(Row {
            seq,
            previous_seq: 0,
            stream,
            version,
            previous,
            digest,
            state,
            balance,
            marks,
            nonce,
            locations,
            event,
        })
    }

    /// Large bytes first: without the records that name them they are dead, and nothing else.
    async fn store(&self, rows: Vec<Row>, parts: Vec<Part>, there: u64) -> Result<u64, LedgerError> {
        let Some(last) = rows.last() else { return Ok(there) };
        let next = last.seq + 1;
        let ids: Vec<&[u8]> = parts.iter().map(|part| part.id.as_slice()).collect();
        let numbers: Vec<i32> = parts.iter().map(|part| part.number as i32).collect();
        let bodies: Vec<&[u8]> = parts.iter().map(|part| part.body.as_slice()).collect();
        if !parts.is_empty() {
            self.link.run(WRITE_PARTS, &[&ids, &numbers, &bodies]).await.map_err(Failure::of_reading)?;
        }
        let names: Vec<[u8; 33]> = rows.iter().map(|row| row.stream.to_bytes()).collect();
        let streams: Vec<&[u8]> = names.iter().map(<[u8; 33]>::as_slice).collect();
        let versions: Vec<i64> = rows.iter().map(|row| row.version as i64).collect();
        let seqs: Vec<i64> = rows.iter().map(|row| row.seq as i64).collect();
        let bodies: Vec<Vec<u8>> = rows.iter().map(Row::encode).collect();
        let (from, to) = (there as i64, next as i64);
        let stored = self.link.run(COPY, &[&from, &to, &streams, &versions, &seqs, &bodies]).await;
        stored.map_err(|failure| match failure {
            Failure::Stale => LedgerError::unavailable("another process moves a ledger there"),
            failure => failure.of_reading(),
        })?;
        Ok(next)
    }

    async fn heads(&mut self) -> Result<(), LedgerError> {
        let states = self.states().await?;
        let touched: Vec<StreamId> = std::mem::take(&mut self.touched).into_iter().collect();
        for streams in touched.chunks(PAGE_MAX) {
            let mut heads = Vec::with_capacity(streams.len());
            for stream in streams {
                let Some((version, digest, seq)) = self.ends.get(stream).copied() else { continue };
                let balance = self.balance(*stream).await?;
                let state = states.get(stream).copied();
                heads.push((stream.to_bytes(), Head { version, seq, digest, state, balance }));
            }
            let names: Vec<&[u8]> = heads.iter().map(|(name, _)| name.as_slice()).collect();
            let versions: Vec<i64> = heads.iter().map(|(_, head)| head.version as i64).collect();
            let encoded: Vec<Vec<u8>> = heads.iter().map(|(_, head)| head.encode()).collect();
            let listed: Vec<Option<i16>> = heads.iter().map(|(_, head)| Some(i16::from(head.state?.code()))).collect();
            let written = self.link.run(HEADS, &[&names, &versions, &encoded, &listed]).await;
            written.map_err(Failure::of_reading)?;
        }
        Ok(())
    }

    /// What the source lists each stream under.
    async fn states(&self) -> Result<BTreeMap<StreamId, StateTag>, LedgerError> {
        let mut states = BTreeMap::new();
        for tag in StateTag::ALL {
            let listed = verify::list_all(self.from, tag).await?;
            states.extend(listed.into_iter().map(|stream| (stream, tag)));
        }
        Ok(states)
    }

    async fn balance(&self, stream: StreamId) -> Result<Option<u64>, LedgerError> {
        if stream.kind != StreamKind::Permit {
            return Ok(None);
        }
        let records = self.from.read(stream).await?;
        records.iter().try_fold(None, |before, record| commit::balance_after(stream, before, &record.event))
    }
}
