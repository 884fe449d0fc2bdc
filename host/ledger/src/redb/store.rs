//! The redb file: creating it, opening it without trusting it, and committing to it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ConcurrencyMode, Database, DatabaseError, ReadableDatabase, ReadableTable};

use super::marker::{self, Mark, Marker};
use super::reads::{self, BY_STATE, HEADS, META, RECORDS, Reads, listing, storage, undamaged};
use super::segments::{self, Segments};
use super::{FORMAT, files};
use crate::commit;
use crate::record::{self, Location};
use crate::{Append, Event, LedgerError, StreamId, hex};

/// Up to this size a file is checked whole whenever it is opened, the only way to find a damaged
/// branch of a tree; beyond it commits save what makes an open after a crash quick.
const CHECKED_BYTES_MAX: u64 = 1 << 30;
/// Memory for pages. The default of redb, 1 GiB, is more than a sandbox host has to spare.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// Appends of other processes remembered, in case they ask again over a new connection.
const REMEMBERED_MAX: usize = 4_096;
/// How far back in a stream an append that was asked again is looked for.
const LOOK_BACK_RECORDS: usize = 256;

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
    pub(super) batch: Vec<Append>,
    /// Set for another process, which may lose us before it hears the outcome.
    pub(super) nonce: Option<[u8; 16]>,
    /// It asks again, so the answer may be in the ledger already.
    pub(super) again: bool,
}

/// What is written once, when a ledger is created.
pub(super) struct Meta {
    pub(super) id: [u8; 16],
    sealed: bool,
}

/// An open ledger, with its one writer.
pub(super) struct Store {
    database: Arc<Database>,
    pub(super) writer: segments::Writer,
    pub(super) marker: Marker,
    at: String,
    file: Option<PathBuf>,
    meta: Meta,
    next_seq: u64,
    remembered: HashMap<[u8; 16], Vec<u64>>,
    order: VecDeque<[u8; 16]>,
}

type Outcome = Result<Vec<u64>, LedgerError>;

/// A commit in the making.
struct Accepted {
    outcomes: Vec<Outcome>,
    last: Option<(u64, [u8; 32])>,
    next_seq: u64,
    marks: bool,
    sealed: bool,
}

impl Store {
    /// Opens the ledger and refuses it unless it contains everything its marker says.
    pub(super) fn open(place: &Place) -> Result<Store, LedgerError> {
        let (store, mark) = Store::open_unmarked(place)?;
        store.check_mark(mark)?;
        Ok(store)
    }

    fn open_unmarked(place: &Place) -> Result<(Store, Option<Mark>), LedgerError> {
        undamaged(|| {
            let database = (place.open)().map_err(|error| opening(&place.at, error))?;
            let meta = read_meta(&place.at, &database)?;
            let next_seq = next_seq(&database)?;
            let (marker, mark) = Marker::open(&place.marker)?;
            let store = Store {
                database: Arc::new(database),
                writer: segments::Writer::new(place.segments.clone()),
                marker,
                at: place.at.clone(),
                file: place.file.clone(),
                meta,
                next_seq,
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
        if mark.seq >= self.next_seq {
            return Err(behind(format!("it ends at record {}, the marker at {}", self.next_seq - 1, mark.seq)));
        }
        if reads::row(&records, mark.seq)?.digest != mark.digest {
            return Err(behind(format!("record {} is another than the marker says", mark.seq)));
        }
        Ok(())
    }

    fn mark(&mut self, seq: u64, digest: [u8; 32]) -> Result<(), LedgerError> {
        self.marker.write(Mark { ledger: self.meta.id, seq, digest })
    }

    pub(super) fn id(&self) -> [u8; 16] {
        self.meta.id
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.meta.sealed
    }

    pub(super) fn database(&self) -> Arc<dyn ReadableDatabase + Send + Sync> {
        Arc::clone(&self.database) as _
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
        let accepted = self.accept(&mut Tables::open(&transaction)?, ops)?;
        let Some((seq, digest)) = accepted.last else {
            transaction.abort().map_err(storage)?;
            return Ok(accepted.outcomes);
        };
        if accepted.sealed {
            transaction
                .open_table(META)
                .and_then(|mut meta| {
                    meta.insert("sealed", guarded(&[1]).as_slice())?;
                    Ok(())
                })
                .map_err(storage)?;
        }
        self.writer.sync()?;
        transaction.commit().map_err(storage)?;
        self.next_seq = accepted.next_seq;
        self.meta.sealed |= accepted.sealed;
        if accepted.marks {
            self.mark(seq, digest)?;
        }
        self.remember(ops, &accepted.outcomes);
        Ok(accepted.outcomes)
    }

    fn accept(&mut self, tables: &mut Tables<'_>, ops: &[Op]) -> Result<Accepted, LedgerError> {
        let mut accepted = Accepted {
            outcomes: Vec::with_capacity(ops.len()),
            last: None,
            next_seq: self.next_seq,
            marks: false,
            sealed: false,
        };
        for op in ops {
            let outcome = match self.stored_before(tables, op)? {
                Some(versions) => Ok(versions),
                None if self.meta.sealed || accepted.sealed => Err(LedgerError::Sealed { at: self.at.clone() }),
                None => match commit::decide(&op.batch, accepted.next_seq, |id| reads::head(&tables.heads, id)) {
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
            tables.insert(&entry, &entry.row(op.nonce, locations).encode())?;
            versions.push(entry.after.version);
            accepted.last = Some((entry.after.seq, entry.after.digest));
            accepted.next_seq = entry.after.seq + 1;
        }
        accepted.marks |= op.batch.iter().any(|append| append.marks_head);
        accepted.sealed |= op.batch.iter().any(|append| matches!(append.event, Some(Event::LedgerSealed { .. })));
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
        for append in op.batch.iter().filter(|append| append.event.is_some()) {
            let versions_left = match found.entry(append.stream) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(tables.versions_with(append.stream, nonce)?),
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

/// The tables of one write transaction.
pub(super) struct Tables<'t> {
    pub(super) records: redb::Table<'t, u64, &'static [u8]>,
    pub(super) heads: redb::Table<'t, &'static [u8], &'static [u8]>,
    by_state: redb::Table<'t, &'static [u8], &'static [u8]>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t redb::WriteTransaction) -> Result<Tables<'t>, LedgerError> {
        Ok(Tables {
            records: transaction.open_table(RECORDS).map_err(storage)?,
            heads: transaction.open_table(HEADS).map_err(storage)?,
            by_state: transaction.open_table(BY_STATE).map_err(storage)?,
        })
    }
}

impl Tables<'_> {
    fn insert(&mut self, entry: &commit::Entry, row: &[u8]) -> Result<(), LedgerError> {
        self.records.insert(entry.after.seq, row).map_err(storage)?;
        self.heads.insert(entry.stream.to_bytes().as_slice(), entry.after.encode().as_slice()).map_err(storage)?;
        let before = entry.before.and_then(|head| head.state);
        if before == entry.after.state {
            return Ok(());
        }
        if let Some(state) = before {
            self.by_state.remove(listing(state, entry.stream).as_slice()).map_err(storage)?;
        }
        if let Some(state) = entry.after.state {
            let key = listing(state, entry.stream);
            self.by_state.insert(key.as_slice(), record::guard(&key).as_slice()).map_err(storage)?;
        }
        Ok(())
    }

    fn versions_with(&self, stream: StreamId, nonce: [u8; 16]) -> Result<VecDeque<u64>, LedgerError> {
        let mut versions = VecDeque::new();
        let Some(head) = reads::head(&self.heads, stream)? else {
            return Ok(versions);
        };
        let mut left = LOOK_BACK_RECORDS;
        reads::walk_back(&self.records, stream, &head, |row| {
            if row.nonce == Some(nonce) {
                versions.push_front(row.version);
            }
            left -= 1;
            left > 0
        })?;
        Ok(versions)
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

fn read_meta(at: &str, database: &impl ReadableDatabase) -> Result<Meta, LedgerError> {
    let foreign = |why: &str| LedgerError::Foreign { at: at.to_owned(), why: why.to_owned() };
    let transaction = database.begin_read().map_err(storage)?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(foreign("the redb file holds no ledger"));
        }
        Err(error) => return Err(storage(error)),
    };
    let value = |name: &str| -> Result<Option<Vec<u8>>, LedgerError> {
        let stored = meta.get(name).map_err(storage)?;
        stored.map(|stored| record::guarded(name, stored.value()).map(<[u8]>::to_vec)).transpose()
    };
    let number = |bytes: Vec<u8>| bytes.try_into().map(u32::from_be_bytes).ok();
    let format = value("format")?.and_then(number).ok_or_else(|| foreign("it does not say its format"))?;
    if format > FORMAT {
        return Err(LedgerError::Newer { at: at.to_owned(), why: format!("its format is {format}") });
    }
    let id = value("id")?.and_then(|id| id.try_into().ok()).ok_or_else(|| foreign("it has no id"))?;
    Ok(Meta { id, sealed: value("sealed")?.is_some() })
}

fn next_seq(database: &impl ReadableDatabase) -> Result<u64, LedgerError> {
    let transaction = database.begin_read().map_err(storage)?;
    let records = transaction.open_table(RECORDS).map_err(storage)?;
    match records.last().map_err(storage)? {
        Some((seq, _)) => Ok(seq.value() + 1),
        None => Err(LedgerError::damaged("it has no records, not even its first")),
    }
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
        let mut meta = transaction.open_table(META).map_err(storage)?;
        meta.insert("format", guarded(&FORMAT.to_be_bytes()).as_slice()).map_err(storage)?;
        meta.insert("id", guarded(&id).as_slice()).map_err(storage)?;
        let mut tables = Tables::open(&transaction)?;
        for entry in commit::decide(&[first], 1, |_| Ok(None))? {
            let row = entry.row(None, Vec::new());
            (mark.seq, mark.digest) = (row.seq, row.digest);
            tables.insert(&entry, &row.encode())?;
        }
    }
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
    let seq = store.next_seq - 1;
    let event = Event::LedgerTrusted { actor: actor.to_owned(), reason: reason.to_owned(), seq, at };
    let mut append = Append::new(StreamId::ledger(), crate::Expect::Any, event);
    append.marks_head = true;
    let outcomes = store.commit(&[Op { batch: vec![append], nonce: None, again: false }])?;
    outcomes.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
}
