//! What one statement shall store: pure, from the heads as they were read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::commit::{self, Head};
use crate::record::{Large, Location};
use crate::{Append, Event, LedgerError, StreamId};

/// Large bytes are kept in parts of this size: far below what any engine takes for one value.
const PART_BYTES: usize = 256 * 1024;

/// What is in the table of heads about a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// 0 for a stream that was only asked about so far.
    pub(super) version: u64,
    pub(super) head: Option<Head>,
}

/// The streams of a group, as far as the table knows them.
pub(super) type Heads = HashMap<StreamId, Known>;

/// A stream's line in the table, if it is still at `based`.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) based: u64,
    /// None for a stream that must not exist: its line is only there to be locked.
    pub(super) after: Option<Head>,
}

pub(super) struct NewRecord {
    pub(super) stream: StreamId,
    pub(super) version: u64,
    pub(super) moment: u64,
    pub(super) body: Vec<u8>,
}

pub(super) struct Part {
    pub(super) id: [u8; 16],
    pub(super) number: usize,
    pub(super) body: Vec<u8>,
}

/// One statement.
#[derive(Default)]
pub(super) struct Plan {
    /// Of each batch, in order: the versions it leaves, or why it is refused.
    pub(super) verdicts: Vec<Result<Vec<u64>, LedgerError>>,
    pub(super) lines: BTreeMap<StreamId, Line>,
    /// Streams that are not written and must be at these versions.
    pub(super) guards: BTreeMap<StreamId, u64>,
    pub(super) records: Vec<NewRecord>,
    pub(super) parts: Vec<Part>,
    /// Whether a dispatch is in it.
    pub(super) marks: bool,
    /// Whether the ledger ends with it.
    pub(super) seals: bool,
    asked: BTreeSet<StreamId>,
}

impl Plan {
    /// Accepts each batch or refuses it, as if they came one after the other. Moments are taken from `moment` on,
    /// and are later than those of all records that a batch builds on.
    pub(super) fn of<'a>(
        batches: impl IntoIterator<Item = &'a [Append]>,
        heads: &Heads,
        at: &str,
        mut moment: u64,
        mut draw: impl FnMut() -> [u8; 16],
    ) -> Plan {
        let mut plan = Plan::default();
        for batch in batches {
            if plan.seals {
                plan.verdicts.push(Err(LedgerError::Sealed { at: at.to_owned(), to: None }));
                continue;
            }
            let now = |plan: &Plan, stream: StreamId| match plan.lines.get(&stream) {
                Some(line) => line.after,
                None => heads.get(&stream).and_then(|known| known.head),
            };
            let latest = batch.iter().filter_map(|append| now(&plan, append.stream)).map(|head| head.seq).max();
            moment = moment.max(latest.map_or(0, |latest| latest + 1));
            let verdict = commit::decide(batch, moment, |stream| Ok(now(&plan, stream)));
            let verdict = verdict.map(|entries| {
                moment += entries.len() as u64;
                plan.accept(batch, entries, heads, &mut draw)
            });
            plan.verdicts.push(verdict);
        }
        plan.guard(heads);
        plan
    }

    fn accept(
        &mut self,
        batch: &[Append],
        entries: Vec<commit::Entry>,
        heads: &Heads,
        draw: &mut impl FnMut() -> [u8; 16],
    ) -> Vec<u64> {
        self.marks |= batch.iter().any(|append| append.marks_head);
        self.seals |= batch.iter().any(|append| matches!(append.event, Some(Event::LedgerSealed { .. })));
        self.asked.extend(batch.iter().map(|append| append.stream));
        let versions = entries.iter().map(|entry| entry.after.version).collect();
        for entry in entries {
            let locations = entry.sealed.large.iter().map(|large| self.keep(large, draw())).collect();
            let body = entry.encode(None, locations);
            let (stream, version, moment) = (entry.stream, entry.after.version, entry.after.seq);
            self.records.push(NewRecord { stream, version, moment, body });
            let based = heads.get(&stream).map_or(0, |known| known.version);
            self.lines.entry(stream).or_insert(Line { based, after: None }).after = Some(entry.after);
        }
        versions
    }

    fn keep(&mut self, large: &Large, id: [u8; 16]) -> Location {
        self.parts.extend(parts(id, &large.bytes));
        let [file, offset] = halves(id);
        Location { place: large.place, file, offset }
    }

    /// What was asked about and is not written must stay as it was read.
    fn guard(&mut self, heads: &Heads) {
        if self.records.is_empty() {
            return;
        }
        for stream in std::mem::take(&mut self.asked) {
            if self.lines.contains_key(&stream) {
                continue;
            }
            match heads.get(&stream) {
                Some(known) => drop(self.guards.insert(stream, known.version)),
                // There is no line to lock: this statement makes one, so that two of them cannot pass each other.
                None => drop(self.lines.insert(stream, Line { based: 0, after: None })),
            }
        }
    }
}

/// Large bytes as they are stored.
pub(super) fn parts(id: [u8; 16], bytes: &[u8]) -> impl Iterator<Item = Part> {
    bytes.chunks(PART_BYTES).enumerate().map(move |(number, body)| Part { id, number, body: body.to_vec() })
}

/// The name of large bytes as a record keeps it.
pub(super) fn halves(id: [u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(id);
    [(number >> 64) as u64, number as u64]
}

/// The inverse of how [`Plan`] names large bytes in a record.
pub(super) fn name(file: u64, offset: u64) -> [u8; 16] {
    (u128::from(file) << 64 | u128::from(offset)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, StreamKind};

    fn stream(n: u8) -> StreamId {
        StreamId { kind: StreamKind::Pin, id: [n; 32] }
    }

    fn pin(n: u8, expect: Expect) -> Append {
        Append::new(stream(n), expect, Event::Pinned { value: "x".into() })
    }

    fn plan(batches: &[Vec<Append>], heads: &Heads, moment: u64) -> Plan {
        Plan::of(batches.iter().map(Vec::as_slice), heads, "here", moment, || [7; 16])
    }

    #[test]
    fn a_refused_batch_leaves_the_others_alone() {
        let batches =
            [vec![pin(1, Expect::Version(0))], vec![pin(1, Expect::Version(0))], vec![pin(1, Expect::Version(1))]];
        let plan = plan(&batches, &Heads::new(), 5);
        assert!(matches!(&plan.verdicts[..], [Ok(_), Err(LedgerError::Conflict { found: 1, .. }), Ok(_)]));
        assert_eq!(
            plan.records.iter().map(|record| (record.version, record.moment)).collect::<Vec<_>>(),
            [(1, 5), (2, 6)]
        );
        assert_eq!((plan.lines[&stream(1)].based, plan.lines[&stream(1)].after.unwrap().version), (0, 2));
    }

    #[test]
    fn what_is_only_asked_about_is_locked_and_not_written() {
        let batches = [vec![pin(1, Expect::Any), Append::guard(stream(2), Expect::Version(0)), pin(3, Expect::Any)]];
        let head = Head { version: 4, seq: 90, digest: [1; 32], state: None, balance: None };
        let heads = Heads::from([(stream(3), Known { version: 4, head: Some(head) })]);
        let found = plan(&batches, &heads, 5);
        assert!(found.lines[&stream(2)].after.is_none(), "it has no line yet");
        assert_eq!(found.lines[&stream(3)].based, 4);
        assert!(found.records[0].moment > 90, "later than all that it builds on");
        let heads = Heads::from([(stream(2), Known { version: 0, head: None })]);
        let found = plan(&batches, &heads, 5);
        assert_eq!(found.guards, BTreeMap::from([(stream(2), 0)]));
        let only = plan(&[vec![Append::guard(stream(2), Expect::Version(0))]], &heads, 5);
        assert!(only.guards.is_empty() && only.lines.is_empty(), "nothing is written: it was answered by reading");
    }

    #[test]
    fn large_bytes_are_found_by_what_the_record_says() {
        let id: [u8; 16] = std::array::from_fn(|n| 0xf0 + n as u8);
        let [file, offset] = halves(id);
        assert_eq!(name(file, offset), id);
    }
}
