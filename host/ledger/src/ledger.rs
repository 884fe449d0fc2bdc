//! The trait that every back end implements, and opening one by its URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::postgres::{self, PostgresLedger};
use crate::{
    Append, Event, LedgerError, Record, StateTag, Stored, StreamId, Tip, memory::MemoryLedger, redb::RedbLedger,
};

/// Most records or ids that one call returns, so that no read holds a snapshot for long.
pub const PAGE_MAX: usize = 1_000;

/// Stored bytes longer than this are kept outside the record.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// An append-only store of hash-chained streams. It stores what [`crate::state`] decides and
/// decides nothing itself beyond the conditions stated in [`crate::Expect`].
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Stores the whole batch or none of it, and returns the new version of each stored event's stream
    /// only when it is durable. Batches of different callers may share a commit; a refused one never
    /// fails another. Dropping the future does not take the append back.
    ///
    /// # Errors
    /// `Conflict` and `Condition`: refused, nothing stored. `Unavailable` and `Full`: the outcome is
    /// not known; read the streams again.
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError>;

    /// As [`Ledger::append`], for what follows from what is stored already, so that nobody waits for it: it may
    /// share the commit of whatever comes next.
    ///
    /// # Errors
    /// Those of [`Ledger::append`].
    async fn append_unhurried(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.append(batch).await
    }

    /// Returns when the head marker, which is kept outside the ledger, names every dispatch that was acknowledged
    /// before this was called: asked for before the first byte of an effect leaves.
    ///
    /// # Errors
    /// The marker could not be moved: nothing may be sent.
    async fn marked(&self) -> Result<(), LedgerError> {
        Ok(())
    }

    /// How many appends other processes have made until now; none while one of them is under way, or where that
    /// cannot be told. Where it is the same before a read and after [`Ledger::append_unhurried`] was handed a
    /// batch that rests on it, nobody elsewhere comes before that batch.
    fn foreign_appends(&self) -> Option<u64> {
        None
    }

    /// The ends of these streams, in their order; none for one that does not exist. Whoever has read a stream knows
    /// by its end whether that is still all of it, for much less than reading it again.
    async fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        let mut tips = Vec::with_capacity(streams.len());
        for stream in streams {
            tips.push(Tip::of(&self.read(*stream).await?));
        }
        Ok(tips)
    }

    /// Every record of a stream in order, each verified against its digest and its predecessor.
    /// Empty when the stream does not exist.
    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError>;

    /// Records of all streams with `seq >= from_seq`, in order, at most `limit` (and [`PAGE_MAX`]).
    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError>;

    /// Streams last appended with this state, in order, after `after`, at most `limit` (and [`PAGE_MAX`]).
    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError>;

    /// Stored bytes, wherever they are kept, verified against their digest.
    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError>;

    /// Removes the records of these streams that lie before their latest tombstone
    /// ([`crate::Event::may_begin`]), from which the streams then begin; a stream without one stays whole. Returns how many records it removed.
    ///
    /// # Errors
    /// `Unavailable` and `Full`: some may be removed; asking again removes the rest.
    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError>;

    /// Gives back the space of large bytes that no record names. Returns how many bytes.
    ///
    /// # Errors
    /// When a record cannot be read nothing more is given back: what it names is not known.
    async fn sweep(&self) -> Result<u64, LedgerError>;

    /// Who and where this ledger is.
    fn identity(&self) -> LedgerIdentity;

    /// The name that the back end fences this process by, where it does: what a dispatch gives as its host.
    fn incarnation(&self) -> Option<[u8; 16]> {
        None
    }

    /// How long ago, by the back end's own clock, the host with this name last gave a sign of life, where the back
    /// end hears of hosts elsewhere; none of one that it does not know, or that has ended. Silence is a suspicion and
    /// proves nothing.
    ///
    /// # Errors
    /// When that cannot be asked.
    async fn silence(&self, _host: [u8; 16]) -> Result<Option<Duration>, LedgerError> {
        Ok(None)
    }

    /// What keeps it private, where something does.
    fn private(&self) -> Option<&crate::private::PrivateLedger> {
        None
    }
}

/// What a handle may do with its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It commits itself.
    Owner,
    /// It hands its appends to the process that owns the ledger.
    Client,
    /// It reads only.
    Reader,
}

/// Who and where a ledger is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerIdentity {
    /// Drawn when the ledger was created.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 16],
    /// Format of the stored ledger.
    pub format: u32,
    /// The URL that opens it.
    pub url: String,
    /// What this handle may do.
    pub role: Role,
}

impl LedgerIdentity {
    /// The path that stands for the ledger on this machine: of its file, or of what lies beside one that is a
    /// database.
    pub fn path(&self) -> Option<PathBuf> {
        self.url.strip_prefix("redb:").map(PathBuf::from).or_else(|| postgres::beside(&self.url))
    }
}

/// Opens an existing ledger: `redb:PATH`, `postgres://HOST/DATABASE?data=FOLDER`, or `memory:` (always new).
///
/// # Errors
/// `Missing`, `Empty`, `Foreign`, `Newer`, `Behind`, `Sealed`, `Damaged`, each meaning what it says;
/// `Invalid` for a URL of no known kind.
pub async fn open(url: &str) -> Result<Arc<dyn Ledger>, LedgerError> {
    let opened: Result<Arc<dyn Ledger>, LedgerError> = match parse(url)? {
        Place::Memory => Ok(Arc::new(MemoryLedger::new())),
        Place::Redb(path) => blocking(move || RedbLedger::open(&path)).await.map(|ledger| Arc::new(ledger) as _),
        Place::Postgres => PostgresLedger::open(url).await.map(|ledger| Arc::new(ledger) as _),
    };
    match opened {
        Err(LedgerError::Sealed { at, to: None }) => Err(LedgerError::Sealed { at, to: moved_to(url).await }),
        other => other,
    }
}

async fn moved_to(url: &str) -> Option<String> {
    sealed_to(&*open_for_reading(url).await.ok()?).await.ok()?
}

/// Where a sealed ledger says that it went.
///
/// # Errors
/// When it cannot be read.
pub async fn sealed_to(ledger: &dyn Ledger) -> Result<Option<String>, LedgerError> {
    let records = ledger.read(StreamId::ledger()).await?;
    Ok(records.into_iter().rev().find_map(|record| match record.event {
        Event::LedgerSealed { to, .. } => Some(to),
        _ => None,
    }))
}

/// The number of the last record: numbers only rise, so it is found by halving.
///
/// # Errors
/// When the ledger cannot be read.
pub async fn last_number(ledger: &dyn Ledger) -> Result<u64, LedgerError> {
    let (mut some, mut none) = (0_u64, 1_u64);
    while !ledger.scan(none, 1).await?.is_empty() {
        some = none;
        none = none.saturating_mul(2);
    }
    while none - some > 1 {
        let middle = some + (none - some) / 2;
        if ledger.scan(middle, 1).await?.is_empty() { none = middle } else { some = middle }
    }
    Ok(some)
}

/// Creates a ledger, the only way one comes into being, and opens it.
///
/// # Errors
/// `Exists` when anything is there already; `Invalid` for a URL of no known kind.
pub async fn init(url: &str) -> Result<Arc<dyn Ledger>, LedgerError> {
    match parse(url)? {
        Place::Memory => Ok(Arc::new(MemoryLedger::new())),
        Place::Redb(path) => Ok(Arc::new(blocking(move || RedbLedger::init(&path, now_ms())).await?)),
        Place::Postgres => Ok(Arc::new(PostgresLedger::init(url, now_ms()).await?)),
    }
}

/// Opens a ledger for reading only, even one that refuses effects (behind its marker, sealed).
///
/// # Errors
/// Those of [`open`], when it cannot be read at all.
pub async fn open_for_reading(url: &str) -> Result<Arc<dyn Ledger>, LedgerError> {
    match parse(url)? {
        Place::Memory => Ok(Arc::new(MemoryLedger::new())),
        Place::Redb(path) => Ok(Arc::new(blocking(move || RedbLedger::open_for_reading(&path)).await?)),
        Place::Postgres => Ok(Arc::new(PostgresLedger::open_for_reading(url).await?)),
    }
}

enum Place {
    Memory,
    Redb(PathBuf),
    Postgres,
}

fn parse(url: &str) -> Result<Place, LedgerError> {
    match url.split_once(':') {
        Some(("redb", path)) if !path.is_empty() => Ok(Place::Redb(PathBuf::from(path))),
        Some(("memory", "")) => Ok(Place::Memory),
        Some(("postgres" | "postgresql", _)) => Ok(Place::Postgres),
        // What comes after the colon may hold a password.
        kind => {
            let kind = kind.map_or("it", |(kind, _)| kind);
            let why = format!("{kind} is no kind of ledger URL; use redb:PATH, postgres://HOST/DATABASE or memory:");
            Err(LedgerError::Invalid { why })
        }
    }
}

/// Opening may repair a file for a second or wait for another process: never on an async thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LedgerError::unavailable(format!("opening it was interrupted: {error}"))),
    }
}

/// The stamp of `LedgerCreated` where the caller gave none. Nothing is decided by it.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
