//! The tables, step by step, and who the ledger in them is.
//!
//! Keys begin with digests or random bytes, so that writes spread over the ranges of an engine that has ranges.
//! The exceptions are written by whoever gives records their places, and by nobody else.

use super::link::{self, Failure, Link};
use crate::commit;
use crate::{Append, Event, Expect, LedgerError, StreamId, hex};

/// The newest form of the tables that this program knows.
pub(super) const FORMAT: i32 = STEPS.len() as i32;

/// Each brings the tables one form further. A step is never changed once it was published.
const STEPS: [&str; 1] = [
    // `one` holds the single row's key. `next_place` is where the next record that gets a place goes.
    "CREATE TABLE oncegate_meta (
        one SMALLINT PRIMARY KEY, format INT NOT NULL, id BYTEA NOT NULL, sealed BOOLEAN NOT NULL,
        doubted BOOLEAN NOT NULL, filling BOOLEAN NOT NULL, next_fence BIGINT NOT NULL, next_place BIGINT NOT NULL);
    CREATE TABLE oncegate_writer (
        id BYTEA PRIMARY KEY, host BYTEA NOT NULL, fence BIGINT NOT NULL, tick BIGINT NOT NULL, done BIGINT NOT NULL,
        fenced BOOLEAN NOT NULL, started TIMESTAMPTZ NOT NULL DEFAULT now(), seen TIMESTAMPTZ NOT NULL DEFAULT now());
    CREATE INDEX oncegate_writer_host ON oncegate_writer (host);
    CREATE TABLE oncegate_head (
        stream BYTEA PRIMARY KEY, version BIGINT NOT NULL, based BIGINT NOT NULL, head BYTEA, state SMALLINT);
    CREATE INDEX oncegate_head_state ON oncegate_head (state, stream) WHERE state IS NOT NULL;
    CREATE TABLE oncegate_record (
        stream BYTEA NOT NULL, version BIGINT NOT NULL, moment BIGINT NOT NULL, body BYTEA NOT NULL,
        PRIMARY KEY (stream, version));
    CREATE TABLE oncegate_waiting (
        stream BYTEA NOT NULL, version BIGINT NOT NULL, moment BIGINT NOT NULL, PRIMARY KEY (stream, version));
    CREATE TABLE oncegate_place (
        seq BIGINT PRIMARY KEY, stream BYTEA NOT NULL, version BIGINT NOT NULL, UNIQUE (stream, version));
    CREATE TABLE oncegate_bytes (
        id BYTEA NOT NULL, part INT NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (id, part));",
];

/// Who the ledger is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) id: [u8; 16],
    pub(super) format: i32,
    pub(super) sealed: bool,
    /// A host found that something is missing, and nobody has accepted that yet.
    pub(super) doubted: bool,
    /// A ledger is being moved here.
    pub(super) filling: bool,
}

/// Makes the tables and the first record, in one transaction.
///
/// # Errors
/// `Exists` when there are tables already.
pub(super) async fn create(link: &Link, at: &str, id: [u8; 16], now: u64) -> Result<(), LedgerError> {
    make(link, at, &first_rows(id, now)?).await
}

/// Makes the tables for a ledger that is moved here, without its records and closed to hosts.
///
/// # Errors
/// As [`create`].
pub(super) async fn create_to_fill(link: &Link, at: &str, id: [u8; 16]) -> Result<(), LedgerError> {
    let sql = format!(
        "INSERT INTO oncegate_meta (one, format, id, sealed, doubted, filling, next_fence, next_place) \
        VALUES (1, {FORMAT}, '\\x{}', false, false, true, 1, 1);",
        hex(&id)
    );
    make(link, at, &sql).await
}

async fn make(link: &Link, at: &str, rows: &str) -> Result<(), LedgerError> {
    match link.run_all(&format!("{}\n{rows}", STEPS.concat())).await {
        Ok(()) => Ok(()),
        Err(failure) if link::is_table_there(&failure) => Err(LedgerError::Exists { at: at.to_owned() }),
        // Two at once: one of them was first.
        Err(Failure::Stale) => Err(LedgerError::Exists { at: at.to_owned() }),
        Err(failure) => Err(failure.of_reading()),
    }
}

fn first_rows(id: [u8; 16], now: u64) -> Result<String, LedgerError> {
    let first = Append::new(StreamId::ledger(), Expect::Version(0), Event::LedgerCreated { id, at: now });
    let mut sql = format!(
        "INSERT INTO oncegate_meta (one, format, id, sealed, doubted, filling, next_fence, next_place) \
        VALUES (1, {FORMAT}, '\\x{}', false, false, false, 1, 2);",
        hex(&id)
    );
    for entry in commit::decide(&[first], 1, |_| Ok(None))? {
        let (stream, version) = (hex(&entry.stream.to_bytes()), entry.after.version);
        let (head, body) = (hex(&entry.after.encode()), hex(&entry.row(None, Vec::new()).encode()));
        sql.push_str(&format!(
            "INSERT INTO oncegate_head (stream, version, based, head) VALUES ('\\x{stream}', {version}, 0, '\\x{head}');
            INSERT INTO oncegate_record (stream, version, moment, body)
                VALUES ('\\x{stream}', {version}, {}, '\\x{body}');
            INSERT INTO oncegate_place (seq, stream, version) VALUES (1, '\\x{stream}', {version});",
            entry.after.seq
        ));
    }
    Ok(sql)
}

/// Who the ledger is.
///
/// # Errors
/// `Missing`, `Foreign`, or `Newer`.
pub(super) async fn meta(link: &Link, at: &str) -> Result<Meta, LedgerError> {
    let foreign = |why: &str| LedgerError::Foreign { at: at.to_owned(), why: why.to_owned() };
    let rows = match link.run("SELECT format, id, sealed, doubted, filling FROM oncegate_meta WHERE one = 1", &[]).await
    {
        Ok(rows) => rows,
        Err(failure) if link::is_no_table(&failure) => return Err(LedgerError::Missing { at: at.to_owned() }),
        Err(failure) => return Err(failure.of_reading()),
    };
    let row = rows.first().ok_or_else(|| foreign("its table says nothing of who it is"))?;
    let unread = |_| foreign("its table is another");
    let format: i32 = row.try_get(0).map_err(unread)?;
    let id: Vec<u8> = row.try_get(1).map_err(unread)?;
    let (sealed, doubted) = (row.try_get(2).map_err(unread)?, row.try_get(3).map_err(unread)?);
    if format > FORMAT {
        return Err(LedgerError::Newer { at: at.to_owned(), why: format!("its tables have form {format}") });
    }
    let filling = row.try_get(4).map_err(unread)?;
    let id = id.try_into().map_err(|_| foreign("its id is none"))?;
    Ok(Meta { id, format, sealed, doubted, filling })
}

/// Brings the tables to the newest form, one step a transaction.
pub(super) async fn migrate(link: &Link, meta: &mut Meta) -> Result<(), LedgerError> {
    for (from, step) in (1_i32..).zip(STEPS.iter().skip(1)) {
        if from < meta.format {
            continue;
        }
        // The division fails for whoever comes second, and nothing of the step is done twice.
        let sql = format!(
            "SELECT 1 / count(*) FROM oncegate_meta WHERE one = 1 AND format = {from};
            UPDATE oncegate_meta SET format = {} WHERE one = 1; {step}",
            from + 1
        );
        link.run_all(&sql).await.map_err(Failure::of_reading)?;
        meta.format = from + 1;
    }
    Ok(())
}
