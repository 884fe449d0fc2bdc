//! What a batch of appends does to the heads of its streams: the same for every back end.

use std::collections::HashMap;
use std::sync::Arc;

use crate::record::{self, Location, Reader, Row, Sealed};
use crate::{Append, Event, Expect, INLINE_BYTES_MAX, LedgerError, StateTag, StreamId};

const LAYOUT: u8 = 1;

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: u64,
    pub(crate) seq: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) state: Option<StateTag>,
    pub(crate) balance: Option<u64>,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = vec![LAYOUT];
        to.extend(self.version.to_be_bytes());
        to.extend(self.seq.to_be_bytes());
        to.extend(self.digest);
        to.push(self.state.map_or(0, StateTag::code));
        to.push(u8::from(self.balance.is_some()));
        to.extend(self.balance.unwrap_or_default().to_be_bytes());
        let end = record::guard(&to);
        to.extend(end);
        to
    }

    pub(crate) fn decode(stream: StreamId, stored: &[u8]) -> Result<Head, LedgerError> {
        let mut from = Reader(record::guarded(format_args!("the head of {stream}"), stored)?);
        let newer = |why: &str| LedgerError::Newer { at: format!("the head of {stream}"), why: why.to_owned() };
        if from.array::<1>()?[0] != LAYOUT {
            return Err(newer("its layout"));
        }
        let version = u64::from_be_bytes(from.array()?);
        let seq = u64::from_be_bytes(from.array()?);
        let digest = from.array()?;
        let state = match from.array::<1>()?[0] {
            0 => None,
            code => Some(StateTag::from_code(code).ok_or_else(|| newer("its state"))?),
        };
        let has_balance = from.array::<1>()?[0] == 1;
        let balance = u64::from_be_bytes(from.array()?);
        Ok(Head { version, seq, digest, state, balance: has_balance.then_some(balance) })
    }
}

/// One append with all that does not depend on the heads of streams done: encoded by its caller, not by
/// the one thread that commits.
pub(crate) struct Prepared {
    pub(crate) stream: StreamId,
    expect: Expect,
    state: Option<StateTag>,
    pub(crate) marks: bool,
    pub(crate) seals: bool,
    change: Change,
    pub(crate) sealed: Option<Arc<Sealed>>,
}

/// What an event does to the balance of its stream.
enum Change {
    Granted(u64),
    Reserved(u64),
    Released(u64),
    Revoked,
    None,
}

impl Change {
    fn of(event: &Event) -> Change {
        match event {
            Event::PermitGranted { amount, .. } => Change::Granted(*amount),
            Event::PermitReserved { amount, .. } => Change::Reserved(*amount),
            Event::PermitReleased { amount, .. } => Change::Released(*amount),
            Event::PermitRevoked { .. } => Change::Revoked,
            _ => Change::None,
        }
    }
}

/// What a stream's balance is after this event.
pub(crate) fn balance_after(stream: StreamId, before: Option<u64>, event: &Event) -> Result<Option<u64>, LedgerError> {
    balance(stream, before, &Change::of(event))
}

impl Prepared {
    /// # Errors
    /// `Invalid`: the event cannot be stored.
    pub(crate) fn new(append: Append) -> Result<Prepared, LedgerError> {
        let change = append.event.as_ref().map_or(Change::None, Change::of);
        Ok(Prepared {
            stream: append.stream,
            expect: append.expect,
            state: append.state,
            marks: append.marks_head,
            seals: matches!(append.event, Some(Event::LedgerSealed { .. })),
            change,
            sealed: append.event.map(|event| record::seal(event, INLINE_BYTES_MAX)).transpose()?.map(Arc::new),
        })
    }

    /// About how much is stored of it.
    pub(crate) fn len(&self) -> u64 {
        let large = |sealed: &Sealed| sealed.large.iter().map(|large| large.bytes.len()).sum::<usize>();
        self.sealed.as_ref().map_or(0, |sealed| (sealed.bytes.len() + large(sealed)) as u64)
    }
}

/// One accepted append, ready to be stored.
pub(crate) struct Entry {
    pub(crate) stream: StreamId,
    pub(crate) before: Option<Head>,
    pub(crate) after: Head,
    pub(crate) marks: bool,
    pub(crate) sealed: Arc<Sealed>,
}

impl Entry {
    /// The stored record, once it is known where its large bytes lie, without its event.
    fn front(&self, nonce: Option<[u8; 16]>, mut locations: Vec<Location>) -> Row {
        locations.extend(&self.sealed.kept);
        Row {
            seq: self.after.seq,
            previous_seq: self.before.map_or(0, |head| head.seq),
            stream: self.stream,
            version: self.after.version,
            previous: self.before.map_or([0; 32], |head| head.digest),
            digest: self.after.digest,
            state: self.after.state,
            balance: self.after.balance,
            marks: self.marks,
            nonce,
            locations,
            event: Vec::new(),
        }
    }

    /// The stored record, once it is known where its large bytes lie.
    pub(crate) fn row(&self, nonce: Option<[u8; 16]>, locations: Vec<Location>) -> Row {
        Row { event: self.sealed.bytes.clone(), ..self.front(nonce, locations) }
    }

    /// Its stored form.
    pub(crate) fn encode(&self, nonce: Option<[u8; 16]>, locations: Vec<Location>) -> Vec<u8> {
        self.front(nonce, locations).encode_with(&self.sealed.bytes)
    }
}

/// Accepts the whole batch or refuses it, given how to find a stream's head. Sequence numbers are
/// taken from `next_seq` on, one an entry; a condition without an event makes none.
pub(crate) fn decide(
    batch: &[Append],
    next_seq: u64,
    head: impl FnMut(StreamId) -> Result<Option<Head>, LedgerError>,
) -> Result<Vec<Entry>, LedgerError> {
    let batch: Vec<Prepared> = batch.iter().cloned().map(Prepared::new).collect::<Result<_, _>>()?;
    decide_prepared(&batch, next_seq, head)
}

/// As [`decide`], of what its callers prepared.
pub(crate) fn decide_prepared(
    batch: &[Prepared],
    next_seq: u64,
    mut head: impl FnMut(StreamId) -> Result<Option<Head>, LedgerError>,
) -> Result<Vec<Entry>, LedgerError> {
    let mut entries: Vec<Entry> = Vec::with_capacity(batch.len());
    let mut heads: HashMap<StreamId, Head> = HashMap::new();
    for append in batch {
        let stream = append.stream;
        let before = match heads.get(&stream) {
            Some(head) => Some(*head),
            None => head(stream)?,
        };
        check(append, before.as_ref())?;
        let Some(sealed) = &append.sealed else { continue };
        let seq = next_seq + entries.len() as u64;
        let version = before.map_or(0, |head| head.version) + 1;
        let previous = before.map_or([0; 32], |head| head.digest);
        let after = Head {
            version,
            seq,
            digest: record::digest(stream, version, &previous, &sealed.bytes),
            state: append.state.or(before.and_then(|head| head.state)),
            balance: balance(stream, before.and_then(|head| head.balance), &append.change)?,
        };
        heads.insert(stream, after);
        entries.push(Entry { stream, before, after, marks: append.marks, sealed: Arc::clone(sealed) });
    }
    Ok(entries)
}

fn check(append: &Prepared, head: Option<&Head>) -> Result<(), LedgerError> {
    let found = head.map_or(0, |head| head.version);
    match append.expect {
        Expect::Any => Ok(()),
        Expect::Version(expected) if expected == found => Ok(()),
        Expect::Version(_) => Err(LedgerError::Conflict { stream: append.stream, expected: append.expect, found }),
        Expect::Remaining { at_least } => match head.and_then(|head| head.balance) {
            Some(left) if left >= at_least => Ok(()),
            Some(left) => Err(condition(append.stream, format!("{left} left, {at_least} needed"))),
            None => Err(condition(append.stream, "it has no balance".to_owned())),
        },
    }
}

fn condition(stream: StreamId, why: String) -> LedgerError {
    LedgerError::Condition { stream, why }
}

/// A permit's balance never goes below nothing, whatever the append expected.
fn balance(stream: StreamId, before: Option<u64>, change: &Change) -> Result<Option<u64>, LedgerError> {
    match (change, before) {
        (Change::Granted(amount), None) => Ok(Some(*amount)),
        (Change::Granted(_), Some(_)) => Err(condition(stream, "it was granted before".to_owned())),
        (Change::Reserved(amount), Some(left)) => match left.checked_sub(*amount) {
            Some(left) => Ok(Some(left)),
            None => Err(condition(stream, format!("{left} left, {amount} needed"))),
        },
        (Change::Reserved(_), None) => Err(condition(stream, "it was never granted".to_owned())),
        (Change::Released(amount), Some(left)) => Ok(Some(left.saturating_add(*amount))),
        (Change::Revoked, Some(_)) => Ok(Some(0)),
        (Change::Released(_) | Change::Revoked | Change::None, before) => Ok(before),
    }
}
