//! Removing what lies before tombstones, and large bytes that no record names.

use std::collections::BTreeSet;

use super::link::Failure;
use super::plan;
use super::reads::{Reads, field};
use crate::{Ledger, LedgerError, PAGE_MAX, Stored, StreamId};

/// Records and their places, in one commit. Those of a stream lie before a tombstone that is stored.
const CUT: &str = "WITH places AS (
        DELETE FROM oncegate_place WHERE stream = $1 AND version < $2 RETURNING version),
    records AS (
        DELETE FROM oncegate_record WHERE stream = $1 AND version < $2 RETURNING version)
    SELECT (SELECT count(*) FROM records)";
const NAMES: &str = "SELECT id, sum(length(body))::bigint FROM oncegate_bytes WHERE id > $1
    GROUP BY id ORDER BY id LIMIT $2";
const DROP: &str = "WITH gone AS (DELETE FROM oncegate_bytes WHERE id = ANY($1) RETURNING length(body) AS bytes)
    SELECT coalesce(sum(bytes), 0)::bigint FROM gone";
const TRIES_MAX: usize = 50;

/// Removes the records of one stream before its latest tombstone; how many. They have their places already, so that
/// a number is missing for each of them and for no other.
pub(super) async fn forget(reads: &Reads, stream: StreamId) -> Result<u64, LedgerError> {
    let records = reads.read(stream).await?;
    let Some(tombstone) = records.iter().rfind(|record| record.event.may_begin()) else { return Ok(0) };
    let before = tombstone.version as i64;
    let name = stream.to_bytes();
    for _ in 0..TRIES_MAX {
        let link = reads.link().await?;
        match link.run(CUT, &[&name.as_slice(), &before]).await {
            Ok(rows) => {
                let count: i64 = rows.first().map_or(Ok(0), |row| field(row, 0))?;
                return super::reads::number(count);
            }
            Err(Failure::Again) => {}
            Err(failure) => return Err(failure.of_reading()),
        }
    }
    Err(LedgerError::unavailable("other writers were always quicker"))
}

/// Gives back large bytes that were there before and that no record names. They are stored in the commit of the
/// record that names them, so what is listed first and named by no record read later is named by none.
pub(super) async fn sweep(ledger: &dyn Ledger, reads: &Reads) -> Result<u64, LedgerError> {
    let mut there = there(reads).await?;
    let mut from = 1;
    loop {
        let page = ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        for mut record in page {
            for stored in record.event.stored_mut() {
                if let Stored::Segment { file, offset, .. } = stored {
                    there.remove(plan::name(*file, *offset).as_slice());
                }
            }
        }
    }
    let mut freed = 0;
    let dead: Vec<Vec<u8>> = there.into_iter().collect();
    for names in dead.chunks(PAGE_MAX) {
        let rows = reads.ask(DROP, &[&names]).await?;
        freed += super::reads::number(rows.first().map_or(Ok(0), |row| field::<i64>(row, 0))?)?;
    }
    Ok(freed)
}

async fn there(reads: &Reads) -> Result<BTreeSet<Vec<u8>>, LedgerError> {
    let mut there: BTreeSet<Vec<u8>> = BTreeSet::new();
    loop {
        let after = there.last().cloned().unwrap_or_default();
        let rows = reads.ask(NAMES, &[&after, &(PAGE_MAX as i64)]).await?;
        if rows.is_empty() {
            return Ok(there);
        }
        for row in &rows {
            there.insert(field(row, 0)?);
        }
    }
}
