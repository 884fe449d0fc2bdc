//! Checks a whole ledger, record by record, without trusting any index of it; or an export of one, far
//! from any ledger.

mod lines;

use std::collections::{BTreeMap, BTreeSet};

pub use lines::verify_export;
use serde::{Deserialize, Serialize};

use crate::private::KeyCheck;
use crate::private::store::KeyStore;
use crate::{
    Effect, Event, Ledger, LedgerError, PAGE_MAX, Record, StateTag, Stored, StreamId, StreamKind, hex, sha256, state,
};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The record, where one is concerned.
    pub seq: Option<u64>,
    /// The stream, where one is concerned.
    pub stream: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// The heads of all streams at one moment, to be signed and kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The ledger's id, in hex.
    pub ledger: String,
    /// The last record it covers.
    pub seq: u64,
    /// How many streams.
    pub streams: u64,
    /// SHA-256 over every stream's name, version and digest in order, in hex.
    pub digest: String,
}

/// What a check of the whole ledger found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Large byte strings read.
    pub byte_strings: u64,
    /// Byte strings that retention dropped.
    pub dropped: u64,
    /// Effects, by state.
    pub effects: BTreeMap<&'static str, u64>,
    /// Effects that only an operator can move.
    pub frozen: u64,
    /// The heads as read.
    pub checkpoint: Checkpoint,
    /// Everything found wrong.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether nothing was found wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Reads every record, checks chains, digests, bytes and that every effect's history is legal, that no
/// record is missing that retention did not remove, and compares each stream and the lists by state
/// with it.
///
/// # Errors
/// When the ledger cannot be read at all; damage that can be named is in the report.
pub async fn verify(ledger: &dyn Ledger) -> Result<Report, LedgerError> {
    verify_with(ledger, None).await
}

/// As [`verify`], of the ledger as it is stored; and that no key is missing whose erasure is not on record.
///
/// # Errors
/// As [`verify`], and when the keys cannot be listed.
pub async fn verify_with(ledger: &dyn Ledger, keys: Option<&dyn KeyStore>) -> Result<Report, LedgerError> {
    let mut check = Check::default();
    let mut from = 1;
    loop {
        let page = match ledger.scan(from, PAGE_MAX).await {
            Ok(page) => page,
            Err(error @ (LedgerError::Damaged { .. } | LedgerError::Newer { .. })) => {
                check.problem(None, None, format!("from record {from} on: {error}"));
                break;
            }
            Err(error) => return Err(error),
        };
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        for record in page {
            check.record(ledger, record).await;
        }
    }
    check.numbers();
    if let Some(keys) = keys {
        check.missing_keys(keys)?;
    }
    check.identity(&hex(&ledger.identity().id));
    check.streams(ledger).await;
    match check.lists(ledger).await {
        // After a page that could not be read the store reads nothing more; the damage is what counts.
        Err(error) if check.problems.is_empty() => Err(error),
        Err(_) | Ok(()) => Ok(check.report(&hex(&ledger.identity().id))),
    }
}

/// The heads of all streams now, without reading any stored bytes.
///
/// # Errors
/// Those of [`Ledger::scan`].
pub async fn checkpoint(ledger: &dyn Ledger) -> Result<Checkpoint, LedgerError> {
    let mut heads = BTreeMap::new();
    let mut from = 1;
    loop {
        let page = ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        heads.extend(page.iter().map(|record| (record.stream, (record.version, record.digest))));
    }
    Ok(checkpoint_of(&hex(&ledger.identity().id), from - 1, &heads))
}

/// The end of each stream: version and digest.
pub(crate) type Heads = BTreeMap<StreamId, (u64, [u8; 32])>;

pub(crate) fn checkpoint_of(ledger: &str, seq: u64, heads: &Heads) -> Checkpoint {
    let mut bytes = b"oncegate checkpoint 1".to_vec();
    for (stream, (version, digest)) in heads {
        bytes.extend(stream.to_bytes());
        bytes.extend(version.to_be_bytes());
        bytes.extend(digest);
    }
    Checkpoint { ledger: ledger.to_owned(), seq, streams: heads.len() as u64, digest: hex(&sha256(&bytes)) }
}

#[derive(Default)]
struct Check {
    records: u64,
    byte_strings: u64,
    dropped: u64,
    last_seq: u64,
    /// Records that retention removed: those before the tombstone that a stream begins with.
    removed: u64,
    /// The ledger's id, as its first record says it.
    created: Option<String>,
    heads: Heads,
    effects: BTreeMap<StreamId, Option<Effect>>,
    keys: KeyCheck,
    problems: Vec<Problem>,
}

impl Check {
    fn problem(&mut self, seq: Option<u64>, stream: Option<StreamId>, what: String) {
        self.problems.push(Problem { seq, stream: stream.map(|stream| stream.to_string()), what });
    }

    /// The first record and whoever holds the records name one ledger.
    fn identity(&mut self, ledger: &str) {
        let other = self.created.take().filter(|created| created != ledger);
        if let Some(created) = other {
            self.problem(Some(1), None, format!("it was created as the ledger {created}, not as {ledger}"));
        }
    }

    async fn record(&mut self, ledger: &dyn Ledger, mut record: Record) {
        let (seq, stream) = (record.seq, record.stream);
        self.links(&record);
        for bytes in record.event.stored_mut() {
            match bytes {
                Stored::Inline(_) | Stored::Private(_) => {}
                Stored::Gone { .. } => self.dropped += 1,
                Stored::Segment { .. } => {
                    self.byte_strings += 1;
                    if let Err(error) = ledger.load(bytes).await {
                        self.problem(Some(seq), Some(stream), error.to_string());
                    }
                }
            }
        }
    }

    /// Everything that a record says about others.
    fn links(&mut self, record: &Record) {
        if record.seq <= self.last_seq {
            self.problem(Some(record.seq), Some(record.stream), format!("it comes after record {}", self.last_seq));
        }
        if let (1, Event::LedgerCreated { id, .. }) = (record.seq, &record.event) {
            self.created = Some(hex(id));
        }
        self.records += 1;
        self.last_seq = self.last_seq.max(record.seq);
        self.chain(record);
        self.keys.record(record);
        if record.stream.kind == StreamKind::Effect {
            self.effect(record);
        }
    }

    fn chain(&mut self, record: &Record) {
        let head = self.heads.insert(record.stream, (record.version, record.digest));
        let follows = match head {
            Some((version, digest)) => record.version == version + 1 && record.previous == digest,
            None if record.version > 1 && record.event.may_begin() => {
                self.removed += record.version - 1;
                true
            }
            None => record.version == 1 && record.previous == [0; 32],
        };
        if !follows {
            self.problem(Some(record.seq), Some(record.stream), "it does not follow the record before it".to_owned());
        }
    }

    fn effect(&mut self, record: &Record) {
        let before = self.effects.entry(record.stream).or_insert(None);
        match state::next(before.as_ref(), &record.event) {
            Ok(after) => *before = Some(after.without_bytes()),
            Err(illegal) => self.problem(Some(record.seq), Some(record.stream), illegal.to_string()),
        }
    }

    fn missing_keys(&mut self, keys: &dyn KeyStore) -> Result<(), LedgerError> {
        for (stream, seq, name) in self.keys.missing(keys)? {
            let what = format!("its key {name} is missing, and no erasure is on record");
            self.problem(Some(seq), Some(stream), what);
        }
        Ok(())
    }

    /// Records are numbered one by one, and only retention removes any.
    fn numbers(&mut self) {
        let missing = self.last_seq.saturating_sub(self.records);
        if missing != self.removed {
            let removed = self.removed;
            self.problem(None, None, format!("{missing} records are missing, of which retention removed {removed}"));
        }
    }

    /// What a host would read of each stream ends where its records end.
    async fn streams(&mut self, ledger: &dyn Ledger) {
        for (stream, (version, digest)) in self.heads.clone() {
            let what = match ledger.read(stream).await {
                Ok(records) => {
                    let end = records.last().map(|last| (last.version, last.digest));
                    (end != Some((version, digest))).then(|| "its head is not its last record".to_owned())
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(what) = what {
                self.problem(None, Some(stream), what);
            }
        }
    }

    async fn lists(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        for tag in StateTag::ALL {
            let expected: BTreeSet<StreamId> = self
                .effects
                .iter()
                .filter(|(_, effect)| effect.as_ref().is_some_and(|effect| effect.state == tag))
                .map(|(stream, _)| *stream)
                .collect();
            let listed = match list_all(ledger, tag).await {
                Ok(listed) => listed,
                Err(error @ LedgerError::Damaged { .. }) => {
                    self.problem(None, None, format!("the list of {tag}: {error}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for stream in expected.symmetric_difference(&listed) {
                self.problem(None, Some(*stream), format!("the list of {tag} is wrong about it"));
            }
        }
        Ok(())
    }

    fn report(self, ledger: &str) -> Report {
        let mut effects = BTreeMap::new();
        for effect in self.effects.values().flatten() {
            *effects.entry(effect.state.as_str()).or_insert(0) += 1;
        }
        Report {
            records: self.records,
            byte_strings: self.byte_strings,
            dropped: self.dropped,
            effects,
            frozen: self.effects.values().flatten().filter(|effect| effect.frozen).count() as u64,
            checkpoint: checkpoint_of(ledger, self.last_seq, &self.heads),
            problems: self.problems,
        }
    }
}

/// All streams listed under a state.
///
/// # Errors
/// Those of [`Ledger::list`].
pub async fn list_all(ledger: &dyn Ledger, tag: StateTag) -> Result<BTreeSet<StreamId>, LedgerError> {
    let mut all = BTreeSet::new();
    loop {
        let page = ledger.list(tag, all.last().copied(), PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}
