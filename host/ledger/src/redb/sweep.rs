//! Giving back the space of large bytes that no record names any more.
//!
//! Only what was written before a moment at which nothing was under way is looked at: what no record
//! names then is dead for good, since bytes are named by the commit that stores them or never.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, fallocate};

use super::RedbLedger;
use super::segments::Segments;
use crate::{Ledger, LedgerError, PAGE_MAX, Stored};

/// A file system counts space in units of so many bytes, whatever its own blocks are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Where large bytes that are named lie: offset and length, by segment.
type Named = BTreeMap<u64, BTreeMap<u64, u64>>;

/// Removes segments without a named byte, and frees the rest of what is dead. Returns how much space
/// came back.
pub(super) async fn sweep(ledger: &RedbLedger, segments: &Segments) -> Result<u64, LedgerError> {
    let until = ledger.forget_until(Vec::new()).await?;
    let named = named(ledger).await?;
    let failed = |error: io::Error| LedgerError::io("freeing the space of dropped bytes", &error);
    let mut freed = 0;
    for number in segments.numbers().map_err(failed)?.into_iter().filter(|number| *number <= until.segment) {
        let nothing = BTreeMap::new();
        let ranges = named.get(&number).unwrap_or(&nothing);
        let closed = number < until.segment;
        freed += if closed && ranges.is_empty() {
            remove(segments, number)
        } else {
            punch(segments, number, (!closed).then_some(until.end), ranges)
        }
        .map_err(failed)?;
    }
    Ok(freed)
}

async fn named(ledger: &RedbLedger) -> Result<Named, LedgerError> {
    let mut named = Named::new();
    let mut from = 1;
    loop {
        let page = ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { return Ok(named) };
        from = last.seq + 1;
        for mut record in page {
            for stored in record.event.stored_mut() {
                if let Stored::Segment { file, offset, len, .. } = *stored {
                    named.entry(file).or_default().insert(offset, len);
                }
            }
        }
    }
}

fn remove(segments: &Segments, number: u64) -> io::Result<u64> {
    let path = segments.path(number);
    let size = space(&File::open(&path)?)?;
    std::fs::remove_file(path)?;
    Ok(size)
}

/// Frees what lies between the named bytes, up to `end` where more may be written behind it.
fn punch(segments: &Segments, number: u64, end: Option<u64>, named: &BTreeMap<u64, u64>) -> io::Result<u64> {
    let file = OpenOptions::new().write(true).open(segments.path(number))?;
    let before = space(&file)?;
    let end = end.unwrap_or(file.metadata()?.len());
    for (offset, len) in gaps(named, end) {
        match fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => {}
            // A file system that cannot keeps them until the whole segment is dead.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(before.saturating_sub(space(&file)?))
}

fn space(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * STAT_BLOCK_BYTES)
}

/// What lies before `end` and in none of the ranges: offset and length.
fn gaps(named: &BTreeMap<u64, u64>, end: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for (offset, len) in named {
        if *offset > at {
            gaps.push((at, offset.min(&end).saturating_sub(at)));
        }
        at = at.max(offset.saturating_add(*len));
    }
    gaps.push((at, end.saturating_sub(at)));
    gaps.retain(|(_, len)| *len > 0);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_names_is_a_gap() {
        let named = BTreeMap::from([(10, 5), (15, 5), (30, 10)]);
        assert_eq!(gaps(&named, 50), [(0, 10), (20, 10), (40, 10)]);
        assert_eq!(gaps(&named, 25), [(0, 10), (20, 5)]);
        assert_eq!(gaps(&BTreeMap::from([(0, 4), (2, 1)]), 6), [(4, 2)]);
        assert_eq!(gaps(&BTreeMap::new(), 0), []);
    }
}
