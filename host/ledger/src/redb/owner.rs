//! The process that owns a ledger: it commits, and serves the others.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::committer::{self, Queue};
use super::files;
use super::reads::Reads;
use super::server::Server;
use super::store::{Place, Store};
use crate::LedgerError;

/// The right to own a ledger: a lock that the operating system releases when the process ends.
pub(super) struct Ownership {
    _lock: File,
}

impl Ownership {
    /// Takes it, unless another process has it.
    pub(super) fn take(ledger: &Path) -> Result<Option<Ownership>, LedgerError> {
        let path = files::beside(ledger, "lock");
        let failed = |error: &std::io::Error| LedgerError::io(format!("locking {}", path.display()), error);
        let file = files::open_private(&path).map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Ownership { _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }
}

/// See the module. Dropping it closes the ledger.
pub(crate) struct Owner {
    id: [u8; 16],
    queue: Queue,
    reads: Arc<Reads>,
    incarnation: Arc<AtomicU64>,
    server: Server,
    committer: Option<JoinHandle<()>>,
    // Last: released when everything else is down.
    _ownership: Ownership,
}

impl Owner {
    pub(super) fn start(path: &Path, ownership: Ownership) -> Result<Owner, LedgerError> {
        let place = Place::file(path);
        let store = Store::open(&place)?;
        if store.is_sealed() {
            return Err(LedgerError::Sealed { at: path.display().to_string(), to: None });
        }
        let id = store.id();
        let reads = Arc::new(Reads::of(store.opened(), place.segments.clone()));
        let incarnation = Arc::new(AtomicU64::new(0));
        let (queue, committer) = committer::start(store, place, Arc::clone(&reads), Arc::clone(&incarnation))?;
        let server = Server::start(path, id, queue.clone(), Arc::clone(&reads))?;
        Ok(Owner { id, queue, reads, incarnation, server, committer: Some(committer), _ownership: ownership })
    }

    pub(super) fn id(&self) -> [u8; 16] {
        self.id
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    pub(super) fn reads(&self) -> Arc<Reads> {
        Arc::clone(&self.reads)
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Relaxed)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.server.stop();
        self.queue.stop();
        if let Some(committer) = self.committer.take() {
            let _ = committer.join();
        }
        self.reads.close();
    }
}
