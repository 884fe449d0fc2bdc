//! Bytes from outside the process, read by themselves: a stored record without its ledger.
//!
//! For tools that look at a damaged ledger, and for tests that try any bytes. The frames of the socket are
//! at [`crate::redb::repeat_request`] and [`crate::redb::repeat_reply`].

use crate::record::{self, Row};
use crate::{LedgerError, Record};

/// The form in which the record would be stored: its sealed event as it is, the digest over it made anew.
#[must_use]
pub fn write_record(record: &Record) -> Vec<u8> {
    let (stream, version, previous) = (record.stream, record.version, record.previous);
    let digest = record::digest(stream, version, &previous, &record.sealed);
    let (locations, event) = (Vec::new(), record.sealed.clone());
    Row {
        seq: record.seq,
        previous_seq: 0,
        stream,
        version,
        previous,
        digest,
        state: None,
        balance: None,
        marks: false,
        nonce: None,
        locations,
        event,
    }
    .encode()
}

/// Reads a stored record that is expected at `seq`, as a ledger reads it.
///
/// # Errors
/// [`LedgerError::Damaged`] for bytes that no ledger wrote, [`LedgerError::Newer`] for what only a later
/// version understands.
pub fn read_record(seq: u64, stored: &[u8]) -> Result<Record, LedgerError> {
    Row::decode(seq, stored)?.into_record()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, StreamId};

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_bit_of_it_can_differ() {
        let event = Event::LedgerCreated { id: [7; 16], at: 1 };
        let sealed = record::seal(event.clone(), 64).unwrap().bytes;
        let record = Record {
            seq: 3,
            stream: StreamId::ledger(),
            version: 1,
            event,
            digest: record::digest(StreamId::ledger(), 1, &[0; 32], &sealed),
            previous: [0; 32],
            sealed,
        };
        let stored = write_record(&record);
        assert_eq!(read_record(3, &stored).unwrap(), record);
        assert!(read_record(4, &stored).is_err(), "it lies in another's place");
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read_record(3, &flipped).is_err(), "bit {bit}");
        }
    }
}
