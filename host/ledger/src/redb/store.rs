//! The redb file: creating it, opening it without trusting it, and committing to it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{ConcurrencyMode, Database, DatabaseError, ReadableDatabase};

use super::index::{self, Known, Named, Tables, Tail};
use super::marker::{self, Mark, Marker};
use super::marks::{Marking, Marks};
use super::reads::{self, META, Newest, Opened, RECORDS, Reads, storage, undamaged};
use super::segments::{self, Segments};
use super::{FORMAT, FORMAT_BEFORE, files};
use crate::commit::{self, Head, Prepared};
use crate::record::{self, Location};
use crate::{Append, Event, LedgerError, StreamId, hex};

/// Up to this size a file is checked whole whenever it is opened, the only way to find a damaged
/// branch of a tree; beyond it commits save what makes an open after a crash quick.
const CHECKED_BYTES_MAX: u64 = 1 << 30;
/// Memory for pages. The default of redb, 1 GiB, is more than a sandbox host has to spare.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// Appends of other processes remembered, in case they ask again over a new connection.
const REMEMBERED_MAX: usize = 4_096;

/// Where a ledger is and how its database is opened.
pub(super) struct Place {
    pub(super) open: Box<dyn Fn() -> Result<Database, DatabaseError> + Send>,
    pub(super) at: String,
    pub(super) file: Option<PathBuf>,
    pub(super) segments: Segments,
    pub(super) marker: PathBuf,
}

impl Place {
    pub(super) fn file(path: &Path) -> Place {
        let file = path.to_owned();
        Place {
            open: Box::new(move || builder(&file).open(&file)),
            at: path.display().to_string(),
            file: Some(path.to_owned()),
            segments: Segments::at(files::beside(path, "segments")),
            marker: marker::path(path),
        }
    }
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

fn builder(path: &Path) -> redb::Builder {
    let mut builder = Database::builder();
    builder
        .set_cache_size(CACHE_BYTES)
        .set_concurrency_mode(ConcurrencyMode::SingleWriter)
        .set_check_integrity_on_open(size(path) <= CHECKED_BYTES_MAX);
    builder
}

/// One caller's appends.
pub(super) struct Op {
    pub(super) batch: Vec<Prepared>,
    /// Set for another process, which may lose us before it hears the outcome.
    pub(super) nonce: Option<[u8; 16]>,
    /// It asks again, so the answer may be in the ledger already.
    pub(super) again: bool,
}

impl Op {
    /// Encodes the events, on the caller's thread.
    ///
    /// # Errors
    /// `Invalid`: one of them cannot be stored.
    pub(super) fn new(batch: Vec<Append>, nonce: Option<[u8; 16]>, again: bool) -> Result<Op, LedgerError> {
        let batch = batch.into_iter().map(Prepared::new).collect::<Result<_, _>>()?;
        Ok(Op { batch, nonce, again })
    }

    fn marks(&self) -> bool {
        self.batch.iter().any(|append| append.marks)
    }
}

/// What a ledger says of itself.
pub(super) struct Meta {
    pub(super) id: [u8; 16],
    sealed: bool,
    /// None in a ledger of the format before.
    pub(super) known: Option<Known>,
}

/// An open ledger, with its one writer.
pub(super) struct Store {
    database: Arc<Database>,
    pub(super) writer: segments::Writer,
    marking: Marking,
    at: String,
    file: Option<PathBuf>,
    meta: Meta,
    /// What META says of the records.
    pub(super) known: Known,
    tail: Arc<RwLock<Tail>>,
    /// The last record that the marker must name and perhaps does not: found when it was opened.
    owed: Option<Named>,
    remembered: HashMap<[u8; 16], Vec<u64>>,
    order: VecDeque<[u8; 16]>,
}

type Outcome = Result<Vec<u64>, LedgerError>;

/// A commit in the making.
struct Accepted {
    outcomes: Vec<Outcome>,
    last: Option<Named>,
    next_seq: u64,
    heads: HashMap<StreamId, Head>,
    marks: bool,
    sealed: bool,
}

impl Store {
    /// Opens the ledger and refuses it unless it contains everything its marker says.
    pub(super) fn open(place: &Place) -> Result<Store, LedgerError> {
        let (store, mark) = Store::open_unmarked(place)?;
        store.check_mark(mark)?;
        if let Some((seq, digest)) = store.owed
            && mark.is_some_and(|mark| mark.seq < seq)
        {
            // Acknowledged by an owner that ended before the marker was moved. What was read must be durable
            // before it is named.
            if let Some(path) = &place.file {
                let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
                synced.map_err(|error| LedgerError::io(format!("syncing {}", path.display()), &error))?;
            }
            store.mark(seq, digest);
        }
        Ok(store)
    }

    fn open_unmarked(place: &Place) -> Result<(Store, Option<Mark>), LedgerError> {
        undamaged(|| {
            let database = (place.open)().map_err(|error| opening(&place.at, error))?;
            let meta = read_meta(&place.at, &database)?;
            let known = match meta.known {
                Some(known) => known,
                None => migrate(&database)?,
            };
            let (tail, owed) = read_tail(&database, &known)?;
            let (mut marker, mark) = Marker::open(&place.marker)?;
            let named = mark.map_or(0, |mark| mark.seq);
            let store = Store {
                database: Arc::new(database),
                writer: segments::Writer::new(place.segments.clone()),
                marking: Marking::start(named, Box::new(move |mark| marker.write(mark)))?,
                at: place.at.clone(),
                file: place.file.clone(),
                meta,
                known,
                tail: Arc::new(RwLock::new(tail)),
                owed,
                remembered: HashMap::new(),
                order: VecDeque::new(),
            };
            Ok((store, mark))
        })
    }

    fn check_mark(&self, mark: Option<Mark>) -> Result<(), LedgerError> {
        let behind = |why: String| LedgerError::Behind { at: self.at.clone(), why };
        let transaction = self.database.begin_read().map_err(storage)?;
        let records = transaction.open_table(RECORDS).map_err(storage)?;
        // `create` wrote the first one: without a marker nobody can tell a new ledger from an old copy.
        let Some(mark) = mark else { return Err(behind("the marker is missing or unreadable".to_owned())) };
        if mark.ledger != self.meta.id {
            let why = format!("its id is {}, its head marker is of {}", hex(&self.meta.id), hex(&mark.ledger));
            return Err(LedgerError::Foreign { at: self.at.clone(), why });
        }
        if mark.seq > self.known.last.0 {
            return Err(behind(format!("it ends at record {}, the marker at {}", self.known.last.0, mark.seq)));
        }
        if reads::row(&records, mark.seq)?.digest != mark.digest {
            return Err(behind(format!("record {} is another than the marker says", mark.seq)));
        }
        Ok(())
    }

    pub(super) fn mark(&self, seq: u64, digest: [u8; 32]) {
        self.marks().want(Mark { ledger: self.meta.id, seq, digest });
    }

    pub(super) fn marks(&self) -> &Marks {
        self.marking.marks()
    }

    fn next_seq(&self) -> u64 {
        self.known.last.0 + 1
    }

    pub(super) fn id(&self) -> [u8; 16] {
        self.meta.id
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.meta.sealed
    }

    /// For those who read it in this process.
    pub(super) fn opened(&self) -> Opened {
        let newest = Newest::Shared(Arc::clone(&self.tail));
        Opened { database: Arc::clone(&self.database) as _, newest, marks: Some(self.marks().clone()) }
    }

    #[cfg(test)]
    pub(super) fn database(&self) -> Arc<dyn ReadableDatabase + Send + Sync> {
        Arc::clone(&self.database) as _
    }

    /// The head of a stream before what is being written.
    pub(super) fn head(&self, tables: &Tables<'_>, stream: StreamId) -> Result<Option<Head>, LedgerError> {
        let newest = self.tail.read().unwrap_or_else(PoisonError::into_inner).head(stream);
        newest.map_or_else(|| tables.head(stream), |head| Ok(Some(head)))
    }

    /// Commits what it accepts, durable when this returns, and refuses the rest.
    ///
    /// # Errors
    /// A failure of the storage: nothing is known about any of the appends.
    pub(super) fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, LedgerError> {
        undamaged(|| self.try_commit(ops))
    }

    pub(super) fn begin(&self) -> Result<redb::WriteTransaction, LedgerError> {
        let mut transaction = self.database.begin_write().map_err(storage)?;
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(self.file.as_ref().is_some_and(|file| size(file) > CHECKED_BYTES_MAX));
        Ok(transaction)
    }

    fn try_commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, LedgerError> {
        let transaction = self.begin()?;
        let (accepted, indexed) = {
            let mut tables = Tables::open(&transaction)?;
            let accepted = self.accept(&mut tables, ops)?;
            let indexed = self.index_if_due(&mut tables, &accepted)?;
            (accepted, indexed)
        };
        let Some((seq, digest)) = accepted.last else {
            transaction.abort().map_err(storage)?;
            return Ok(accepted.outcomes);
        };
        let known = Known {
            indexed: indexed.unwrap_or(self.known.indexed),
            forgotten: self.known.forgotten,
            last: (seq, digest),
        };
        known.write(&transaction)?;
        if accepted.sealed {
            let mut meta = transaction.open_table(META).map_err(storage)?;
            meta.insert("sealed", guarded(&[1]).as_slice()).map_err(storage)?;
        }
        self.writer.sync()?;
        transaction.commit().map_err(storage)?;
        self.known = known;
        self.meta.sealed |= accepted.sealed;
        self.tail.write().unwrap_or_else(PoisonError::into_inner).committed(accepted.heads, indexed);
        if accepted.marks {
            self.mark(seq, digest);
        }
        self.remember(ops, &accepted.outcomes);
        Ok(accepted.outcomes)
    }

    fn index_if_due(&self, tables: &mut Tables<'_>, accepted: &Accepted) -> Result<Option<u64>, LedgerError> {
        let Some((last, _)) = accepted.last else { return Ok(None) };
        let due = {
            let tail = self.tail.read().unwrap_or_else(PoisonError::into_inner);
            let until = tail.due(last, self.marks().unmarked());
            until.map(|until| (until, tail.heads_until(until, &accepted.heads)))
        };
        let Some((until, heads)) = due else { return Ok(None) };
        tables.index(&heads)?;
        Ok(Some(until))
    }

    fn accept(&mut self, tables: &mut Tables<'_>, ops: &[Op]) -> Result<Accepted, LedgerError> {
        let mut accepted = Accepted {
            outcomes: Vec::with_capacity(ops.len()),
            last: None,
            next_seq: self.next_seq(),
            heads: HashMap::new(),
            marks: false,
            sealed: false,
        };
        let unmarkable = self.marks().failing();
        for op in ops {
            let outcome = match (self.stored_before(tables, op)?, &unmarkable) {
                (Some(versions), _) => Ok(versions),
                (None, _) if self.meta.sealed || accepted.sealed => {
                    Err(LedgerError::Sealed { at: self.at.clone(), to: None })
                }
                // It would not be sent: better not to promise it either.
                (None, Some(why)) if op.marks() => Err(why.clone()),
                (None, _) => match self.decide(tables, op, &accepted) {
                    Ok(entries) => Ok(self.write(tables, op, entries, &mut accepted)?),
                    // A damaged head is the ledger's failure, not this caller's.
                    Err(error) if error.refuses_effects() => return Err(error),
                    Err(refusal) => Err(refusal),
                },
            };
            accepted.outcomes.push(outcome);
        }
        Ok(accepted)
    }

    fn decide(&self, tables: &Tables<'_>, op: &Op, accepted: &Accepted) -> Result<Vec<commit::Entry>, LedgerError> {
        commit::decide_prepared(&op.batch, accepted.next_seq, |stream| match accepted.heads.get(&stream) {
            Some(head) => Ok(Some(*head)),
            None => self.head(tables, stream),
        })
    }

    fn write(
        &mut self,
        tables: &mut Tables<'_>,
        op: &Op,
        entries: Vec<commit::Entry>,
        accepted: &mut Accepted,
    ) -> Result<Vec<u64>, LedgerError> {
        let mut versions = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut locations = Vec::with_capacity(entry.sealed.large.len());
            for large in &entry.sealed.large {
                let (file, offset) = self.writer.append(&large.bytes)?;
                locations.push(Location { place: large.place, file, offset });
            }
            tables.insert(&entry, &entry.encode(op.nonce, locations))?;
            versions.push(entry.after.version);
            accepted.heads.insert(entry.stream, entry.after);
            accepted.last = Some((entry.after.seq, entry.after.digest));
            accepted.next_seq = entry.after.seq + 1;
        }
        accepted.marks |= op.marks();
        accepted.sealed |= op.batch.iter().any(|append| append.seals);
        Ok(versions)
    }

    /// The outcome of an append that another process asks for again.
    fn stored_before(&self, tables: &Tables<'_>, op: &Op) -> Result<Option<Vec<u64>>, LedgerError> {
        let Some(nonce) = op.nonce else {
            return Ok(None);
        };
        if let Some(versions) = self.remembered.get(&nonce) {
            return Ok(Some(versions.clone()));
        }
        if !op.again {
            return Ok(None);
        }
        let mut found: HashMap<StreamId, VecDeque<u64>> = HashMap::new();
        let mut versions = Vec::with_capacity(op.batch.len());
        for append in op.batch.iter().filter(|append| append.sealed.is_some()) {
            let versions_left = match found.entry(append.stream) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let head = self.head(tables, append.stream)?;
                    new.insert(tables.versions_with(append.stream, head, nonce)?)
                }
            };
            match versions_left.pop_front() {
                Some(version) => versions.push(version),
                None => return Ok(None),
            }
        }
        Ok(Some(versions))
    }

    fn remember(&mut self, ops: &[Op], outcomes: &[Outcome]) {
        for (op, outcome) in ops.iter().zip(outcomes) {
            if let (Some(nonce), Ok(versions)) = (op.nonce, outcome) {
                self.remembered.insert(nonce, versions.clone());
                self.order.push_back(nonce);
            }
        }
        while self.order.len() > REMEMBERED_MAX {
            if let Some(nonce) = self.order.pop_front() {
                self.remembered.remove(&nonce);
            }
        }
    }
}

fn guarded(value: &[u8]) -> Vec<u8> {
    let mut bytes = value.to_vec();
    bytes.extend(record::guard(value));
    bytes
}

/// What redb says on opening, by what it means for the ledger.
fn opening(at: &str, error: DatabaseError) -> LedgerError {
    match error {
        DatabaseError::UpgradeRequired(version) => {
            LedgerError::Newer { at: at.to_owned(), why: format!("its file format is {version}") }
        }
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            LedgerError::unavailable(format!("{at} is open in another program"))
        }
        error => storage(error),
    }
}

pub(super) fn read_meta(at: &str, database: &impl ReadableDatabase) -> Result<Meta, LedgerError> {
    let foreign = |why: &str| LedgerError::Foreign { at: at.to_owned(), why: why.to_owned() };
    let transaction = database.begin_read().map_err(storage)?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(foreign("the redb file holds no ledger"));
        }
        Err(error) => return Err(storage(error)),
    };
    let format = reads::meta(&meta, "format")?.and_then(|bytes| bytes.try_into().map(u32::from_be_bytes).ok());
    let format = format.ok_or_else(|| foreign("it does not say its format"))?;
    if format > FORMAT {
        return Err(LedgerError::Newer { at: at.to_owned(), why: format!("its format is {format}") });
    }
    let id = reads::meta(&meta, "id")?.and_then(|id| id.try_into().ok()).ok_or_else(|| foreign("it has no id"))?;
    let known = Known::read(&meta)?;
    if known.is_none() != (format == FORMAT_BEFORE) {
        return Err(LedgerError::damaged("what it says of its records is not of its format"));
    }
    Ok(Meta { id, sealed: reads::meta(&meta, "sealed")?.is_some(), known })
}

/// Reads what the tables do not know yet, and the last record that the marker must name.
fn read_tail(database: &impl ReadableDatabase, known: &Known) -> Result<(Tail, Option<Named>), LedgerError> {
    let transaction = database.begin_read().map_err(storage)?;
    let records = transaction.open_table(RECORDS).map_err(storage)?;
    known.check(&records)?;
    Tail::read(&records, known.indexed)
}

/// From the format before, in one commit: its tables of heads and lists know all there is.
fn migrate(database: &Database) -> Result<Known, LedgerError> {
    let mut transaction = database.begin_write().map_err(storage)?;
    transaction.set_two_phase_commit(true);
    let known = {
        let mut tables = Tables::open(&transaction)?;
        tables.unlist_done()?;
        let seq = index::last(&tables.records)?;
        let last = (seq, reads::row(&tables.records, seq)?.digest);
        Known { indexed: seq, forgotten: seq.saturating_sub(tables.len()?), last }
    };
    known.write(&transaction)?;
    write_format(&transaction)?;
    transaction.commit().map_err(storage)?;
    Ok(known)
}

fn write_format(transaction: &redb::WriteTransaction) -> Result<(), LedgerError> {
    let mut meta = transaction.open_table(META).map_err(storage)?;
    meta.insert("format", guarded(&FORMAT.to_be_bytes()).as_slice()).map_err(storage)?;
    Ok(())
}

/// Creates a ledger: complete and durable under another name before it gets its own.
pub(super) fn create(path: &Path, id: [u8; 16], at: u64) -> Result<(), LedgerError> {
    let path = files::absolute(path)?;
    for taken in [path.clone(), marker::path(&path)] {
        if taken.symlink_metadata().is_ok() {
            return Err(LedgerError::Exists { at: taken.display().to_string() });
        }
    }
    let temporary = files::beside(&path, &format!("{}.new", hex(&id)));
    let created = create_as(&path, &temporary, id, at);
    let removed = std::fs::remove_file(&temporary);
    created?;
    removed
        .and_then(|()| files::sync_directory(files::parent(&path)))
        .map_err(|error| LedgerError::io(format!("creating {}", path.display()), &error))
}

fn create_as(path: &Path, temporary: &Path, id: [u8; 16], at: u64) -> Result<(), LedgerError> {
    let failed = |error: &std::io::Error| LedgerError::io(format!("creating {}", path.display()), error);
    files::private_directory(files::parent(path)).map_err(|error| failed(&error))?;
    let file = files::private_file(temporary).map_err(|error| failed(&error))?;
    let database = builder(temporary).create(temporary).map_err(storage)?;
    let mark = write_first(&database, id, at)?;
    database.close().map_err(storage)?;
    file.sync_all().map_err(|error| failed(&error))?;
    // Before the ledger has its name: a marker alone refuses, a ledger alone would be refused for ever.
    let marker = marker::path(path);
    Marker::create(&marker, mark)?;
    // A link, unlike a rename, never replaces what another process made meanwhile.
    std::fs::hard_link(temporary, path).map_err(|error| {
        // Ours, and of a ledger that never was.
        let _ = std::fs::remove_file(&marker);
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => LedgerError::Exists { at: path.display().to_string() },
            _ => failed(&error),
        }
    })
}

/// The schema and the first record, in one commit.
pub(super) fn write_first(database: &Database, id: [u8; 16], at: u64) -> Result<Mark, LedgerError> {
    let mut mark = Mark { ledger: id, seq: 0, digest: [0; 32] };
    let first = Append::new(StreamId::ledger(), crate::Expect::Version(0), Event::LedgerCreated { id, at });
    let mut transaction = database.begin_write().map_err(storage)?;
    transaction.set_two_phase_commit(true);
    {
        let mut tables = Tables::open(&transaction)?;
        for entry in commit::decide(&[first], 1, |_| Ok(None))? {
            (mark.seq, mark.digest) = (entry.after.seq, entry.after.digest);
            tables.insert(&entry, &entry.encode(None, Vec::new()))?;
        }
    }
    write_format(&transaction)?;
    Known { indexed: 0, forgotten: 0, last: (mark.seq, mark.digest) }.write(&transaction)?;
    transaction
        .open_table(META)
        .and_then(|mut meta| {
            meta.insert("id", guarded(&id).as_slice())?;
            Ok(())
        })
        .map_err(storage)?;
    transaction.commit().map_err(storage)?;
    Ok(mark)
}

/// Opens beside a living owner.
pub(super) fn open_read_only(path: &Path) -> Result<(Reads, Meta), LedgerError> {
    undamaged(|| {
        let at = path.display().to_string();
        let database = builder(path).open_read_only(path).map_err(|error| match error {
            DatabaseError::RepairAborted => LedgerError::unavailable("it was not closed properly"),
            error => opening(&at, error),
        })?;
        let meta = read_meta(&at, &database)?;
        Ok((Reads::new(Arc::new(database), Segments::at(files::beside(path, "segments"))), meta))
    })
}

/// Opens and closes it, which repairs what a crash left.
pub(super) fn repair(path: &Path) -> Result<(), LedgerError> {
    undamaged(|| {
        let database = builder(path).open(path).map_err(|error| opening(&path.display().to_string(), error))?;
        database.close().map_err(storage)
    })
}

/// Accepts the ledger as it is, on record, and marks its end.
pub(super) fn trust(path: &Path, actor: &str, reason: &str, at: u64) -> Result<(), LedgerError> {
    let (mut store, _) = Store::open_unmarked(&Place::file(path))?;
    let seq = store.known.last.0;
    let event = Event::LedgerTrusted { actor: actor.to_owned(), reason: reason.to_owned(), seq, at };
    let mut append = Append::new(StreamId::ledger(), crate::Expect::Any, event);
    append.marks_head = true;
    let outcomes = store.commit(&[Op::new(vec![append], None, false)?])?;
    outcomes.into_iter().try_for_each(|outcome| outcome.map(|_| ()))?;
    store.marks().wait()
}
