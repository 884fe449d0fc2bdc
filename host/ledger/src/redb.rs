//! The default ledger: one redb file, one committer thread, and a socket for other processes.
//!
//! Beside the ledger `L` lie `L.lock` (who owns it), `L.head` (the marker that it must not be behind),
//! `L.segments/` (large bytes), `L.hosts/` (living hosts), `L.keys/` (what is encrypted is under these, see
//! [`crate::private`]) and `L.sock` (where other processes hand in their appends).

mod client;
mod committer;
mod files;
mod foreign;
mod forget;
mod index;
mod marker;
mod marks;
mod owner;
mod protocol;
mod reads;
mod segments;
mod server;
mod store;
mod sweep;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod format_tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use rand::random;

use crate::{
    Append, Event, Expect, Ledger, LedgerError, LedgerIdentity, Record, Role, StateTag, Stored, StreamId, Tip,
};
use client::Client;
use committer::Hurry;
pub use files::everybody_can_change;
pub(crate) use files::{beside, parent, private_directory, private_file, sync_directory};
use owner::{Owner, Ownership};
use protocol::{Forgot, Reply, Request};
pub use protocol::{repeat_reply, repeat_request};
use reads::Reads;

/// Version of everything this back end writes.
pub const FORMAT: u32 = 2;
/// The version before, which is brought up to this one, in one commit, by the process that comes to own it.
const FORMAT_BEFORE: u32 = 1;

/// A ledger in a redb file. The first process that opens it owns it; others become its clients, and
/// one of them takes over when the owner is gone.
pub struct RedbLedger {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    path: PathBuf,
    id: [u8; 16],
    mode: RwLock<Mode>,
}

enum Mode {
    Owner(Owner),
    Client(Client),
    /// Reads only; appends are refused with this.
    Reader(Arc<Reads>, LedgerError),
}

/// What a call needs of the mode, so that the lock is not held while it waits.
#[derive(Clone)]
enum Handle {
    Owner(committer::Queue, Arc<Reads>),
    Client(client::Calls),
    Reader(Arc<Reads>, LedgerError),
}

impl RedbLedger {
    /// Creates the ledger at `path` and opens it. `at` is only the stamp of its first record.
    ///
    /// # Errors
    /// `Exists` when there is anything at `path`, or the marker of a ledger that was there.
    pub fn init(path: &Path, at: u64) -> Result<RedbLedger, LedgerError> {
        store::create(path, random(), at)?;
        RedbLedger::open(path)
    }

    /// Opens the ledger at `path`: as its owner, or as a client of the process that owns it.
    ///
    /// # Errors
    /// `Missing`, `Empty`, `Foreign`, `Exposed`, `Newer`, `Behind`, `Sealed`, `Damaged` or `Unavailable`.
    pub fn open(path: &Path) -> Result<RedbLedger, LedgerError> {
        let path = files::absolute(path)?;
        files::check_exists(&path)?;
        files::refuse_if_exposed(&path)?;
        let (id, mode) = match client::attach(&path)? {
            client::Attached::Owner(ownership) => {
                let owner = Owner::start(&path, ownership)?;
                (owner.id(), Mode::Owner(owner))
            }
            client::Attached::Client { id, stream } => (id, Mode::Client(Client::start(&path, id, stream)?)),
        };
        let shared = Arc::new(Shared { path, id, mode: RwLock::new(mode) });
        if let Mode::Client(client) = &*shared.mode() {
            client.may_take_over(Arc::downgrade(&shared));
        }
        Ok(RedbLedger { shared })
    }

    /// Opens the ledger at `path` for reading only, beside a living owner, and even when it refuses
    /// effects. A ledger that was not closed properly is repaired first.
    ///
    /// # Errors
    /// As [`RedbLedger::open`], when it cannot be read.
    pub fn open_for_reading(path: &Path) -> Result<RedbLedger, LedgerError> {
        let path = files::absolute(path)?;
        files::check_exists(&path)?;
        let (reads, meta) = match store::open_read_only(&path) {
            Err(LedgerError::Unavailable { .. }) => {
                let _lock = Ownership::take(&path)?
                    .ok_or_else(|| LedgerError::unavailable("its owner is starting; try again"))?;
                store::repair(&path)?;
                store::open_read_only(&path)?
            }
            other => other?,
        };
        let why = LedgerError::unavailable("it was opened for reading only");
        let mode = RwLock::new(Mode::Reader(Arc::new(reads), why));
        Ok(RedbLedger { shared: Arc::new(Shared { path, id: meta.id, mode }) })
    }

    /// Accepts a ledger that is behind its marker (or whose marker is lost) as it is, on record. The
    /// effects that it does not know may happen again: that is what is being decided.
    ///
    /// # Errors
    /// As [`RedbLedger::open`] for everything but `Behind`; `Invalid` without actor or reason.
    pub fn trust(path: &Path, actor: &str, reason: &str, at: u64) -> Result<RedbLedger, LedgerError> {
        if actor.is_empty() || reason.is_empty() {
            return Err(LedgerError::Invalid { why: "to trust a ledger takes an actor and a reason".to_owned() });
        }
        let path = files::absolute(path)?;
        files::check_exists(&path)?;
        files::refuse_if_exposed(&path)?;
        let Some(ownership) = Ownership::take(&path)? else {
            return Err(LedgerError::unavailable("another process has it open; it is trusted already"));
        };
        store::trust(&path, actor, reason, at)?;
        drop(ownership);
        RedbLedger::open(&path)
    }

    /// How often this process had to open the ledger again after a failed commit. Rows are read
    /// again after each, never assumed.
    pub fn incarnation(&self) -> u64 {
        match &*self.shared.mode() {
            Mode::Owner(owner) => owner.incarnation(),
            Mode::Client(_) | Mode::Reader(..) => 0,
        }
    }

    /// Marks the ledger as moved to `to`: nothing is appended after this.
    ///
    /// # Errors
    /// Those of [`Ledger::append`].
    pub async fn seal(&self, to: &str, actor: &str, reason: &str, at: u64) -> Result<(), LedgerError> {
        let event = Event::LedgerSealed { to: to.to_owned(), actor: actor.to_owned(), reason: reason.to_owned(), at };
        self.append(vec![Append::new(StreamId::ledger(), Expect::Any, event)]).await.map(|_| ())
    }

    async fn forget_until(&self, streams: Vec<StreamId>) -> Result<Forgot, LedgerError> {
        match self.ask(Request::Forget { streams }).await? {
            Reply::Forgot(forgot) => Ok(forgot),
            _ => unexpected(),
        }
    }

    #[cfg(test)]
    fn marked_durably(&self) {
        if let Handle::Owner(_, reads) = self.handle() {
            reads.marks().map(|marks| marks.wait()).transpose().unwrap();
        }
    }

    fn handle(&self) -> Handle {
        self.shared.mode().handle()
    }

    async fn ask(&self, mut request: Request) -> Result<Reply, LedgerError> {
        loop {
            request = match (self.handle(), request) {
                (Handle::Owner(queue, _), Request::Append { batch, .. }) => {
                    return queue.append(batch, Hurry::Now).await.map(Reply::Versions);
                }
                (Handle::Owner(queue, _), Request::Forget { streams }) => {
                    let (reply, outcome) = tokio::sync::oneshot::channel();
                    queue.forget(streams, Box::new(move |forgot| drop(reply.send(forgot))));
                    let closed = || Err(LedgerError::unavailable("it was closed"));
                    return outcome.await.unwrap_or_else(|_| closed()).map(Reply::Forgot);
                }
                (Handle::Reader(_, why), Request::Append { .. } | Request::Forget { .. } | Request::Marked) => {
                    return Err(why);
                }
                (Handle::Owner(_, reads) | Handle::Reader(reads, _), question) => {
                    return reads.answer(&question);
                }
                (Handle::Client(calls), request) => match calls.ask(request).await {
                    Ok(answer) => return answer,
                    // Taken over between the look at the mode and the call.
                    Err(request) => request,
                },
            };
            tokio::task::yield_now().await;
        }
    }
}

impl Mode {
    fn handle(&self) -> Handle {
        match self {
            Mode::Owner(owner) => Handle::Owner(owner.queue(), owner.reads()),
            Mode::Client(client) => Handle::Client(client.calls()),
            Mode::Reader(reads, why) => Handle::Reader(Arc::clone(reads), why.clone()),
        }
    }
}

impl Shared {
    fn mode(&self) -> std::sync::RwLockReadGuard<'_, Mode> {
        self.mode.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner is gone and this process is the owner now.
    fn became_owner(&self, owner: Owner) {
        *self.mode.write().unwrap_or_else(PoisonError::into_inner) = Mode::Owner(owner);
    }
}

fn unexpected<T>() -> Result<T, LedgerError> {
    Err(LedgerError::unavailable("the owner of the ledger answered something else"))
}

#[async_trait]
impl Ledger for RedbLedger {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        match self.ask(Request::Append { batch, nonce: random(), again: false }).await? {
            Reply::Versions(versions) => Ok(versions),
            _ => unexpected(),
        }
    }

    /// Another process owns it: then this is an append like any other.
    async fn append_unhurried(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        match self.handle() {
            Handle::Owner(queue, _) => queue.append(batch, Hurry::Soon).await,
            Handle::Client(_) | Handle::Reader(..) => self.append(batch).await,
        }
    }

    async fn marked(&self) -> Result<(), LedgerError> {
        match self.ask(Request::Marked).await? {
            Reply::Marked => Ok(()),
            _ => unexpected(),
        }
    }

    fn foreign_appends(&self) -> Option<u64> {
        match &*self.shared.mode() {
            Mode::Owner(owner) => owner.reads().foreign.settled(),
            Mode::Client(_) | Mode::Reader(..) => None,
        }
    }

    async fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        if let Handle::Owner(_, reads) | Handle::Reader(reads, _) = self.handle() {
            return reads.tips(streams);
        }
        let mut tips = Vec::with_capacity(streams.len());
        for stream in streams {
            tips.push(Tip::of(&self.read(*stream).await?));
        }
        Ok(tips)
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        match self.ask(Request::Read { stream }).await? {
            Reply::Records(records) => Ok(records),
            _ => unexpected(),
        }
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        match self.ask(Request::Scan { from_seq, limit }).await? {
            Reply::Records(records) => Ok(records),
            _ => unexpected(),
        }
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        match self.ask(Request::List { state, after, limit }).await? {
            Reply::Streams(streams) => Ok(streams),
            _ => unexpected(),
        }
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        if let Stored::Inline(bytes) = bytes {
            return Ok(bytes.clone());
        }
        match self.ask(Request::Load { bytes: bytes.clone() }).await? {
            Reply::Bytes(bytes) => Ok(bytes),
            _ => unexpected(),
        }
    }

    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        self.forget_until(streams).await.map(|forgot| forgot.records)
    }

    async fn sweep(&self) -> Result<u64, LedgerError> {
        sweep::sweep(self, &segments::Segments::at(beside(&self.shared.path, "segments"))).await
    }

    fn identity(&self) -> LedgerIdentity {
        let role = match &*self.shared.mode() {
            Mode::Owner(_) => Role::Owner,
            Mode::Client(_) => Role::Client,
            Mode::Reader(..) => Role::Reader,
        };
        LedgerIdentity { id: self.shared.id, format: FORMAT, url: format!("redb:{}", self.shared.path.display()), role }
    }
}
