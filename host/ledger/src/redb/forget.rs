//! Removing what lies before a tombstone.
//!
//! The tombstone is durable before this begins, and the head marker never names a record that goes.

use super::index::{Known, Tables};
use super::protocol::Forgot;
use super::reads::{self, storage, undamaged};
use super::store::Store;
use crate::commit::Head;
use crate::record::{self, Row};
use crate::{LedgerError, StreamId};

/// What is removed in one transaction.
#[derive(Default)]
struct Cut {
    records: u64,
    /// The latest tombstone that something was removed before.
    latest: Option<(u64, [u8; 32])>,
}

impl Store {
    /// Removes the records before the latest tombstone of each stream, durable when this returns.
    ///
    /// # Errors
    /// A failure of the storage: what was removed is not known, and asking again removes the rest.
    pub(super) fn forget(&mut self, streams: &[StreamId]) -> Result<Forgot, LedgerError> {
        undamaged(|| {
            let records = if streams.is_empty() { 0 } else { self.try_forget(streams)? };
            let (segment, end) = self.writer.end()?;
            Ok(Forgot { records, segment, end })
        })
    }

    fn try_forget(&mut self, streams: &[StreamId]) -> Result<u64, LedgerError> {
        let transaction = self.begin()?;
        let mut cut = Cut::default();
        {
            let mut tables = Tables::open(&transaction)?;
            for stream in streams {
                if let Some(head) = self.head(&tables, *stream)? {
                    tables.cut(*stream, &head, &mut cut)?;
                }
            }
        }
        let Some((seq, digest)) = cut.latest else {
            transaction.abort().map_err(storage)?;
            return Ok(0);
        };
        // Durable since it was appended. Whatever the marker names from then on comes later.
        self.marks().wait()?;
        if self.marks().named() < seq {
            self.mark(seq, digest);
            self.marks().wait()?;
        }
        let known = Known { forgotten: self.known.forgotten + cut.records, ..self.known };
        known.write(&transaction)?;
        transaction.commit().map_err(storage)?;
        self.known = known;
        Ok(cut.records)
    }
}

impl Tables<'_> {
    fn cut(&mut self, stream: StreamId, head: &Head, cut: &mut Cut) -> Result<(), LedgerError> {
        let mut rows: Vec<Row> = Vec::new();
        reads::walk_back(&self.records, stream, head, |row| {
            rows.push(row);
            true
        })?;
        let mut before = None;
        for (at, row) in rows.iter().enumerate() {
            if record::unseal(&row.event, &row.locations)?.may_begin() {
                before = Some(at);
                break;
            }
        }
        let Some(at) = before else { return Ok(()) };
        let older = rows.split_off(at + 1);
        let (Some(tombstone), false) = (rows.pop(), older.is_empty()) else { return Ok(()) };
        // The stream begins with it from now on; its digest still names the one before.
        let first = Row { previous_seq: 0, ..tombstone };
        self.records.insert(first.seq, first.encode().as_slice()).map_err(storage)?;
        for row in &older {
            self.records.remove(row.seq).map_err(storage)?;
        }
        cut.records += older.len() as u64;
        cut.latest = cut.latest.max(Some((first.seq, first.digest)));
        Ok(())
    }
}
