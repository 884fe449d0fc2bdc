//! A ledger on PostgreSQL, and on what speaks its protocol: many hosts, none of them special.
//!
//! `postgres://USER@HOST/DATABASE?data=FOLDER`: the same records, chains and digests as in a file, decided by the
//! same function. The database keeps heads, records and large bytes; the folder keeps what is this machine's own:
//! head markers (`ledger.heads/`), locks of its processes (`ledger.hosts/`) and keys (`ledger.keys/`).
//!
//! - `writer` stores, a group of appends in one statement, each writer under a row with a fencing number;
//! - `order` numbers the records for [`Ledger::scan`], so that no writer waits for another's number;
//! - [`migrate()`] fills one from another ledger;
//! - `link` says what a server must promise and what its errors mean; `schema` has the tables.
//!
//! A record that has no number yet is read with one that is not above the number it gets: scanning from there finds
//! it and all that comes later.
//!
//! Statements keep to what PostgreSQL, CockroachDB and YugabyteDB document: each is alone in its transaction, names
//! its conflict's column, changes a table once, and needs no advisory lock, trigger or sequence. They are right
//! under READ COMMITTED, because each compares under a lock, and under SERIALIZABLE. Only PostgreSQL was run.

mod enlist;
mod forget;
mod link;
mod marker;
mod migrate;
mod order;
mod plan;
mod reads;
mod schema;
mod session;
mod target;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rand::random;

use crate::{
    Append, Event, Expect, Ledger, LedgerError, LedgerIdentity, PAGE_MAX, Record, Role, StateTag, Stored, StreamId,
};
use link::{Link, Use};
pub use migrate::{Move, migrate};
use order::Places;
use reads::Reads;
use schema::Meta;
use target::Target;
pub use target::{beside, has_password, shown_url, with_folder};
use writer::{Queue, Shared};

/// A host that was not heard of for so long, by the database's clock, is thought to be gone: three of its signs of
/// life are missing. It is a suspicion, and proves nothing.
pub const SUSPICIOUS_AFTER: Duration = Duration::from_secs(30);
/// Writers of one process: while one commits, the next group gathers at the other. More were slower.
const WRITERS: usize = 2;

/// See the module.
pub struct PostgresLedger {
    id: [u8; 16],
    format: u32,
    shown: String,
    host: [u8; 16],
    reads: Arc<Reads>,
    places: Places,
    /// None for a ledger that was opened for reading only.
    writers: Vec<Queue>,
}

/// A writer of the ledger, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The process it belongs to: what dispatches name as their host.
    pub host: [u8; 16],
    /// Rises with each writer that begins.
    pub fence: u64,
    /// Nothing of it is stored any more: it ended, or was fenced.
    pub fenced: bool,
    /// How long ago it last stored something, by the database's clock. Silence is a suspicion and no stop.
    pub silent_ms: u64,
}

impl PostgresLedger {
    /// Creates the ledger, its tables and the first marker, and opens it. `at` is only the stamp of its first record.
    ///
    /// # Errors
    /// `Exists` when there are tables, or markers of a ledger on this machine; those of [`PostgresLedger::open`].
    pub async fn init(url: &str, at: u64) -> Result<PostgresLedger, LedgerError> {
        let target = target(url).await?;
        let shared = shared(&target, random());
        if !enlist::markers(&shared).await?.is_empty() {
            return Err(LedgerError::Exists { at: target.beside.display().to_string() });
        }
        let link = Link::open(&target, Use::Write).await?;
        schema::create(&link, &target.shown, shared.ledger, at).await?;
        let meta = schema::meta(&link, &target.shown).await?;
        PostgresLedger::start(target, meta, shared).await
    }

    /// Opens the ledger at this URL as another host of it.
    ///
    /// # Errors
    /// `Missing`, `Foreign`, `Newer`, `Behind`, `Sealed`, `Exposed`; `Unavailable` when the server cannot be
    /// reached or may lose what it acknowledges; `Invalid` for the URL.
    pub async fn open(url: &str) -> Result<PostgresLedger, LedgerError> {
        let (target, link, meta) = reached(url, Use::Write).await?;
        enlist::refuse_if_closed(&meta, &target.shown)?;
        let shared = shared(&target, meta.id);
        let before = enlist::check_before_start(&link, &shared).await?;
        let ledger = PostgresLedger::start(target, meta, shared).await?;
        enlist::retire(&link, before).await?;
        Ok(ledger)
    }

    /// Opens the ledger for reading only, even when it refuses effects, and on a read replica.
    ///
    /// # Errors
    /// As [`PostgresLedger::open`], when it cannot be read.
    pub async fn open_for_reading(url: &str) -> Result<PostgresLedger, LedgerError> {
        let (target, _, meta) = reached(url, Use::Read).await?;
        Ok(PostgresLedger::with(&target, meta, random(), Vec::new()))
    }

    /// Accepts the database as it is, on record: one that is behind this machine's markers, or of which it has
    /// none. The effects that it does not know may happen again: that is what is being decided.
    ///
    /// # Errors
    /// As [`PostgresLedger::open`] for everything but `Behind`; `Invalid` without actor or reason.
    pub async fn trust(url: &str, actor: &str, reason: &str, at: u64) -> Result<PostgresLedger, LedgerError> {
        if actor.is_empty() || reason.is_empty() {
            return Err(LedgerError::Invalid { why: "to trust a ledger takes an actor and a reason".to_owned() });
        }
        let (target, link, meta) = reached(url, Use::Write).await?;
        let shared = shared(&target, meta.id);
        // Until it is on record nothing is trusted, whatever markers the new writers make.
        enlist::refuse_if_one_goes_on(&link, &shared).await?;
        let held = enlist::hold(&shared).await?;
        enlist::accept(&link).await?;
        shared.accepting.store(true, Ordering::Relaxed);
        let ledger = PostgresLedger::start(target, meta, Arc::clone(&shared)).await?;
        let seq = ledger.scan_end().await?;
        let event = Event::LedgerTrusted { actor: actor.to_owned(), reason: reason.to_owned(), seq, at };
        let mut append = Append::new(StreamId::ledger(), Expect::Any, event);
        append.marks_head = true;
        ledger.append(vec![append]).await?;
        drop(held);
        enlist::retire(&link, enlist::markers(&shared).await?).await?;
        enlist::accept(&link).await?;
        shared.accepting.store(false, Ordering::Relaxed);
        Ok(ledger)
    }

    /// Marks the ledger as moved to `to`: nothing is appended after this, by any host.
    ///
    /// # Errors
    /// Those of [`Ledger::append`].
    pub async fn seal(&self, to: &str, actor: &str, reason: &str, at: u64) -> Result<(), LedgerError> {
        let event = Event::LedgerSealed { to: to.to_owned(), actor: actor.to_owned(), reason: reason.to_owned(), at };
        self.append(vec![Append::new(StreamId::ledger(), Expect::Any, event)]).await.map(|_| ())
    }

    /// Every writer that ever began, those that began first first.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn incarnations(&self) -> Result<Vec<Incarnation>, LedgerError> {
        const ALL: &str = "SELECT host, fence, fenced, \
            greatest(0, floor(extract(epoch FROM (now() - seen)) * 1000))::bigint FROM oncegate_writer ORDER BY fence";
        let rows = self.reads.ask(ALL, &[]).await?;
        let incarnation = |row: &tokio_postgres::Row| {
            let host: Vec<u8> = reads::field(row, 0)?;
            Ok(Incarnation {
                host: host.try_into().map_err(|_| LedgerError::damaged("a writer's host has no name"))?,
                fence: reads::number(reads::field(row, 1)?)?,
                fenced: reads::field(row, 2)?,
                silent_ms: reads::number(reads::field(row, 3)?)?,
            })
        };
        rows.iter().map(incarnation).collect()
    }

    async fn start(target: Arc<Target>, meta: Meta, shared: Arc<Shared>) -> Result<PostgresLedger, LedgerError> {
        let folder = target.beside.clone();
        blocking(move || refuse_if_exposed(&folder)).await?;
        let mut writers = Vec::with_capacity(WRITERS);
        for _ in 0..WRITERS {
            writers.push(writer::start(Arc::clone(&shared), enlist::enlist(&shared).await?));
        }
        Ok(PostgresLedger::with(&target, meta, shared.host, writers))
    }

    fn with(target: &Arc<Target>, meta: Meta, host: [u8; 16], writers: Vec<Queue>) -> PostgresLedger {
        PostgresLedger {
            id: meta.id,
            format: u32::try_from(meta.format).unwrap_or_default(),
            shown: target.shown.clone(),
            host,
            reads: Arc::new(Reads::new(Arc::clone(target))),
            places: Places::start(Arc::clone(target)),
            writers,
        }
    }

    fn is_reader(&self) -> LedgerError {
        LedgerError::unavailable("it was opened for reading only")
    }

    /// The number of the last record that has its place.
    async fn scan_end(&self) -> Result<u64, LedgerError> {
        self.places.given().await?;
        let rows = self.reads.ask("SELECT next_place - 1 FROM oncegate_meta WHERE one = 1", &[]).await?;
        rows.first().map_or(Ok(0), |row| reads::number(reads::field(row, 0)?))
    }
}

async fn target(url: &str) -> Result<Arc<Target>, LedgerError> {
    let url = url.to_owned();
    blocking(move || Target::parse(&url)).await.map(Arc::new)
}

async fn reached(url: &str, purpose: Use) -> Result<(Arc<Target>, Link, Meta), LedgerError> {
    let target = target(url).await?;
    let link = Link::open(&target, purpose).await?;
    let mut meta = schema::meta(&link, &target.shown).await?;
    if purpose == Use::Write {
        schema::migrate(&link, &mut meta).await?;
    }
    Ok((target, link, meta))
}

fn shared(target: &Arc<Target>, ledger: [u8; 16]) -> Arc<Shared> {
    Arc::new(Shared::new(Arc::clone(target), ledger, random()))
}

/// Markers and locks that everybody may change prove nothing.
fn refuse_if_exposed(ledger: &Path) -> Result<(), LedgerError> {
    use std::os::unix::fs::PermissionsExt;
    let heads = crate::redb::beside(ledger, "heads");
    for path in [crate::redb::parent(ledger), &heads] {
        let Ok(metadata) = std::fs::metadata(path) else { continue };
        if crate::redb::everybody_can_change(metadata.permissions().mode()) {
            return Err(LedgerError::Exposed { at: path.display().to_string() });
        }
    }
    Ok(())
}

/// Files are never touched on an async thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LedgerError::unavailable(format!("it was interrupted: {error}"))),
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        // The one with the least to do; while one finds out what came of a lost connection the other goes on.
        let free = self.writers.iter().min_by_key(|writer| writer.open.load(Ordering::Relaxed));
        free.ok_or_else(|| self.is_reader())?.append(batch).await
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.reads.read(stream).await
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        let limit = limit.min(PAGE_MAX);
        let page = self.reads.scan(from_seq, limit).await?;
        if page.len() == limit {
            return Ok(page);
        }
        // This would be the end: what waits comes before it is one.
        self.places.given().await?;
        self.reads.scan(from_seq, limit).await
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        self.reads.list(state, after, limit.min(PAGE_MAX)).await
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        self.reads.load(bytes).await
    }

    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        if self.writers.is_empty() {
            return Err(self.is_reader());
        }
        self.places.given().await?;
        let mut removed = 0;
        for stream in streams {
            removed += forget::forget(&self.reads, stream).await?;
        }
        Ok(removed)
    }

    async fn sweep(&self) -> Result<u64, LedgerError> {
        if self.writers.is_empty() {
            return Err(self.is_reader());
        }
        forget::sweep(self, &self.reads).await
    }

    fn identity(&self) -> LedgerIdentity {
        let role = if self.writers.is_empty() { Role::Reader } else { Role::Owner };
        LedgerIdentity { id: self.id, format: self.format, url: self.shown.clone(), role }
    }

    async fn silence(&self, host: [u8; 16]) -> Result<Option<Duration>, LedgerError> {
        const SEEN: &str = "SELECT greatest(0, floor(extract(epoch FROM (now() - seen)) * 1000))::bigint \
            FROM oncegate_writer WHERE host = $1 AND NOT fenced ORDER BY seen DESC LIMIT 1";
        let rows = self.reads.ask(SEEN, &[&host.as_slice()]).await?;
        rows.first().map(|row| Ok(Duration::from_millis(reads::number(reads::field(row, 0)?)?))).transpose()
    }

    fn incarnation(&self) -> Option<[u8; 16]> {
        (!self.writers.is_empty()).then_some(self.host)
    }
}
