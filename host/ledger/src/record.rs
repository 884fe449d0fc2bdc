//! The stored form of a record, and its digest.
//!
//! The digest covers stream, version, the previous digest and the event with its large bytes replaced
//! by their digests, so that bytes can move or be dropped without breaking a chain. A guard over what
//! stands in front of the event catches what the digest does not cover: where the record and its bytes
//! lie, and which head it makes of its stream.

use crate::{Event, LedgerError, Record, StateTag, Stored, StreamId, hex, sha256};

/// Version of the record's layout and of the event's encoding, one byte in front of each.
const LAYOUT: u8 = 2;
/// The layout before: a guard behind the event, over all of it, and nothing of the head.
const LAYOUT_BEFORE: u8 = 1;
const EVENT_FORMAT: u8 = 1;
const DOMAIN: &[u8] = b"oncegate record 1";
const GUARD_BYTES: usize = 8;
/// What stands in front of a record that has one.
const HAS_NONCE: u8 = 1;
const HAS_BALANCE: u8 = 2;
/// The mark outside the ledger moves to it, or to one behind it in the same commit.
const MARKS: u8 = 4;
/// Room for what stands in front of most events, and for most events.
const FRONT_BYTES: usize = 192;
const EVENT_BYTES: usize = 1024;
/// From this size on redb rounds values up to powers of two: one at it would take twice its size.
const ROUNDED_FROM_BYTES: usize = 1024;

/// Where large bytes of an event are: its place among [`Event::stored_mut`], segment and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) place: u16,
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// Large bytes taken out of an event, still to be kept somewhere.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    pub(crate) place: u16,
    pub(crate) bytes: Vec<u8>,
}

/// An event encoded without its large bytes.
pub(crate) struct Sealed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) large: Vec<Large>,
    pub(crate) kept: Vec<Location>,
}

/// Takes bytes longer than `inline_max` out of the event and encodes the rest.
pub(crate) fn seal(mut event: Event, inline_max: usize) -> Result<Sealed, LedgerError> {
    let mut large = Vec::new();
    let mut kept = Vec::new();
    for (place, stored) in event.stored_mut().into_iter().enumerate() {
        let place = u16::try_from(place)
            .map_err(|_| LedgerError::Invalid { why: "an event with so many lookups".to_owned() })?;
        match stored {
            Stored::Inline(bytes) if bytes.len() > inline_max => {
                let bytes = std::mem::take(bytes);
                *stored = Stored::Gone { len: bytes.len() as u64, digest: sha256(&bytes) };
                large.push(Large { place, bytes });
            }
            Stored::Segment { file, offset, len, digest } => {
                kept.push(Location { place, file: *file, offset: *offset });
                *stored = Stored::Gone { len: *len, digest: *digest };
            }
            Stored::Private(_) => {
                return Err(LedgerError::Invalid { why: "bytes under a key, of an event that is not".to_owned() });
            }
            Stored::Inline(_) | Stored::Gone { .. } => {}
        }
    }
    let mut bytes = Vec::with_capacity(EVENT_BYTES);
    bytes.push(EVENT_FORMAT);
    ciborium::into_writer(&event, &mut bytes)
        .map_err(|error| LedgerError::Invalid { why: format!("the event cannot be encoded: {error}") })?;
    Ok(Sealed { bytes, large, kept })
}

/// The inverse of [`seal`], given where the large bytes are.
pub(crate) fn unseal(bytes: &[u8], locations: &[Location]) -> Result<Event, LedgerError> {
    let newer = |why: String| LedgerError::Newer { at: "record".to_owned(), why };
    let body = match bytes.split_first() {
        Some((&EVENT_FORMAT, body)) => body,
        Some((format, _)) => return Err(newer(format!("an event has format {format}"))),
        None => return Err(LedgerError::damaged("an event has no bytes")),
    };
    // The digest was right, so an event that cannot be read was written by someone who knows more.
    let mut event: Event =
        ciborium::from_reader(body).map_err(|error| newer(format!("an event cannot be read: {error}")))?;
    let mut places = event.stored_mut();
    for location in locations {
        let Some(stored) = places.get_mut(usize::from(location.place)) else {
            return Err(LedgerError::damaged("a record says where bytes lie that it does not have"));
        };
        if let Stored::Gone { len, digest } = **stored {
            **stored = Stored::Segment { file: location.file, offset: location.offset, len, digest };
        }
    }
    Ok(event)
}

/// The digest that chains a record to the one before it.
pub(crate) fn digest(stream: StreamId, version: u64, previous: &[u8; 32], event: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    hash.update(DOMAIN);
    hash.update(stream.to_bytes());
    hash.update(version.to_be_bytes());
    hash.update(previous);
    hash.update(event);
    hash.finalize().into()
}

/// The first bytes of SHA-256: enough against accidents, which is all it is for.
pub(crate) fn guard(bytes: &[u8]) -> [u8; GUARD_BYTES] {
    let digest = sha256(bytes);
    std::array::from_fn(|index| digest[index])
}

/// Splits off and checks the guard.
pub(crate) fn guarded(what: impl std::fmt::Display, bytes: &[u8]) -> Result<&[u8], LedgerError> {
    let split = bytes.len().checked_sub(GUARD_BYTES).map(|at| bytes.split_at(at));
    match split {
        Some((body, end)) if guard(body) == end => Ok(body),
        _ => Err(LedgerError::damaged(format!("{what} does not match its checksum"))),
    }
}

/// A record as a back end stores it.
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) previous_seq: u64,
    pub(crate) stream: StreamId,
    pub(crate) version: u64,
    pub(crate) previous: [u8; 32],
    pub(crate) digest: [u8; 32],
    /// What its stream is listed under from then on, and what is left of its balance.
    pub(crate) state: Option<StateTag>,
    pub(crate) balance: Option<u64>,
    /// Whether the mark outside the ledger must name it or a later one before anything is done about it.
    pub(crate) marks: bool,
    /// Given by another process, so that it can ask later whether its append was stored.
    pub(crate) nonce: Option<[u8; 16]>,
    pub(crate) locations: Vec<Location>,
    pub(crate) event: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_with(&self.event)
    }

    /// The same of an event that lies elsewhere.
    pub(crate) fn encode_with(&self, event: &[u8]) -> Vec<u8> {
        let mut to = Vec::with_capacity(FRONT_BYTES + event.len());
        to.push(LAYOUT);
        to.extend([0; 4]); // How much is in front of the guard, known at its end.
        to.extend(self.seq.to_be_bytes());
        to.extend(self.previous_seq.to_be_bytes());
        to.extend(self.stream.to_bytes());
        to.extend(self.version.to_be_bytes());
        to.extend(self.previous);
        to.extend(self.digest);
        to.push(self.state.map_or(0, StateTag::code));
        let has = |it: bool, flag: u8| if it { flag } else { 0 };
        to.push(
            has(self.nonce.is_some(), HAS_NONCE) | has(self.balance.is_some(), HAS_BALANCE) | has(self.marks, MARKS),
        );
        to.extend(self.nonce.iter().flatten());
        to.extend(self.balance.iter().flat_map(|balance| balance.to_be_bytes()));
        to.extend((self.locations.len() as u16).to_be_bytes());
        for location in &self.locations {
            to.extend(location.place.to_be_bytes());
            to.extend(location.file.to_be_bytes());
            to.extend(location.offset.to_be_bytes());
        }
        to.extend((event.len() as u64).to_be_bytes());
        let front = to.len() as u32;
        to[1..5].copy_from_slice(&front.to_be_bytes());
        let end = guard(&to);
        to.extend(end);
        to.extend(event);
        if to.len() >= ROUNDED_FROM_BYTES && to.len().is_power_of_two() {
            to.push(0);
        }
        to
    }

    /// Reads and verifies a stored record that is expected at `seq`.
    pub(crate) fn decode(seq: u64, stored: &[u8]) -> Result<Row, LedgerError> {
        let (mut row, event) = Row::front(seq, stored)?;
        if digest(row.stream, row.version, &row.previous, event) != row.digest {
            return Err(LedgerError::damaged(format!("record {seq} does not match its digest {}", hex(&row.digest))));
        }
        row.event = event.to_vec();
        Ok(row)
    }

    /// Reads what stands in front of the event, verified but for the event itself, which comes beside it.
    pub(crate) fn front(seq: u64, stored: &[u8]) -> Result<(Row, &[u8]), LedgerError> {
        let (row, event) = match stored.first() {
            Some(&LAYOUT) => Row::parse(seq, stored)?,
            // A damaged first byte of this layout: the guard of the older one does not match then.
            Some(_) => Row::parse_before(seq, guarded(format_args!("record {seq}"), stored)?)?,
            None => return Err(LedgerError::damaged(format!("record {seq} has no bytes"))),
        };
        if row.seq != seq {
            return Err(LedgerError::damaged(format!("record {} is stored in the place of {seq}", row.seq)));
        }
        Ok((row, event))
    }

    fn parse(seq: u64, stored: &[u8]) -> Result<(Row, &[u8]), LedgerError> {
        let front = u32::from_be_bytes(Reader(stored.get(1..).unwrap_or_default()).array()?) as usize;
        let (guarded_part, mut event) = stored
            .split_at_checked(front.saturating_add(GUARD_BYTES))
            .map(|(front, event)| (front, Reader(event)))
            .ok_or_else(|| LedgerError::damaged(format!("record {seq} is shorter than it says")))?;
        let mut from = Reader(guarded(format_args!("record {seq}"), guarded_part)?);
        from.take(5)?;
        let mut row = Row::parse_fixed(seq, &mut from)?;
        row.state = match from.array::<1>()?[0] {
            0 => None,
            code => {
                let newer = || LedgerError::Newer { at: format!("record {seq}"), why: "its state".to_owned() };
                Some(StateTag::from_code(code).ok_or_else(newer)?)
            }
        };
        let [flags] = from.array()?;
        row.nonce = if flags & HAS_NONCE != 0 { Some(from.array()?) } else { None };
        row.balance = if flags & HAS_BALANCE != 0 { Some(u64::from_be_bytes(from.array()?)) } else { None };
        row.marks = flags & MARKS != 0;
        row.parse_locations(&mut from)?;
        let length = u64::from_be_bytes(from.array()?);
        Ok((row, event.take(usize::try_from(length).unwrap_or(usize::MAX))?))
    }

    fn parse_before(seq: u64, body: &[u8]) -> Result<(Row, &[u8]), LedgerError> {
        if body.first() != Some(&LAYOUT_BEFORE) {
            return Err(LedgerError::Newer {
                at: format!("record {seq}"),
                why: format!("its layout is {:?}", body.first()),
            });
        }
        let mut from = Reader(body);
        from.take(1)?;
        let mut row = Row::parse_fixed(seq, &mut from)?;
        row.nonce = if from.array::<1>()?[0] == 1 { Some(from.array()?) } else { None };
        row.parse_locations(&mut from)?;
        let length = u64::from_be_bytes(from.array()?);
        Ok((row, from.take(usize::try_from(length).unwrap_or(usize::MAX))?))
    }

    /// What both layouts begin with.
    fn parse_fixed(at: u64, from: &mut Reader<'_>) -> Result<Row, LedgerError> {
        Ok(Row {
            seq: u64::from_be_bytes(from.array()?),
            previous_seq: u64::from_be_bytes(from.array()?),
            stream: StreamId::from_bytes(&from.array::<33>()?).ok_or_else(|| LedgerError::Newer {
                at: format!("record {at}"),
                why: "its kind of stream".to_owned(),
            })?,
            version: u64::from_be_bytes(from.array()?),
            previous: from.array()?,
            digest: from.array()?,
            state: None,
            balance: None,
            marks: false,
            nonce: None,
            locations: Vec::new(),
            event: Vec::new(),
        })
    }

    fn parse_locations(&mut self, from: &mut Reader<'_>) -> Result<(), LedgerError> {
        for _ in 0..u16::from_be_bytes(from.array()?) {
            self.locations.push(Location {
                place: u16::from_be_bytes(from.array()?),
                file: u64::from_be_bytes(from.array()?),
                offset: u64::from_be_bytes(from.array()?),
            });
        }
        Ok(())
    }

    pub(crate) fn into_record(self) -> Result<Record, LedgerError> {
        let event = unseal(&self.event, &self.locations)?;
        Ok(Record {
            seq: self.seq,
            stream: self.stream,
            version: self.version,
            event,
            digest: self.digest,
            previous: self.previous,
            sealed: self.event,
        })
    }
}

/// Reads fixed fields off the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], LedgerError> {
        let (front, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| LedgerError::damaged("a stored value is shorter than it says"))?;
        self.0 = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], LedgerError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
}
