//! Host incarnations: whether the host that sent an attempt has stopped.
//!
//! A living host holds a lock on a file named after it. The operating system releases the lock when
//! the process ends, however it ends; nothing here looks at a clock, because silence is not a stop.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{LedgerError, LedgerIdentity, hex};

/// Whether a host has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its lock is released.
    Yes,
    /// Its lock is held.
    No,
    /// There is no lock to look at.
    NotKnown,
}

/// The host incarnations of one ledger.
#[derive(Clone, Debug)]
pub struct Hosts {
    directory: Option<PathBuf>,
}

/// A registered incarnation; it stops when this is dropped or the process ends.
#[derive(Debug)]
pub struct Host {
    id: [u8; 16],
    _lock: Lock,
}

#[derive(Debug)]
enum Lock {
    File(#[expect(dead_code, reason = "held for its lock")] File),
    Memory(#[expect(dead_code, reason = "held for its life")] Arc<()>),
}

impl Host {
    /// Its random name.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }
}

/// Hosts of ledgers in memory, which no other process can see.
static IN_MEMORY: Mutex<Option<HashMap<[u8; 16], Weak<()>>>> = Mutex::new(None);

impl Hosts {
    /// The hosts of this ledger.
    pub fn of(ledger: &LedgerIdentity) -> Hosts {
        Hosts { directory: ledger.path().map(|path| beside(&path)) }
    }

    /// The hosts of the ledger in this file.
    pub fn at(ledger: &Path) -> Hosts {
        Hosts { directory: Some(beside(ledger)) }
    }

    /// A new incarnation of this process.
    ///
    /// # Errors
    /// When its lock file cannot be made.
    pub fn register(&self) -> Result<Host, LedgerError> {
        self.register_as(rand::random())
    }

    /// A new incarnation of this process under the name that the ledger fences it by
    /// ([`crate::Ledger::incarnation`]).
    ///
    /// # Errors
    /// As [`Hosts::register`].
    pub fn register_as(&self, id: [u8; 16]) -> Result<Host, LedgerError> {
        let lock = match &self.directory {
            Some(directory) => Lock::File(lock_file(directory, id)?),
            None => {
                let alive = Arc::new(());
                let mut hosts = IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
                hosts.get_or_insert_default().insert(id, Arc::downgrade(&alive));
                Lock::Memory(alive)
            }
        };
        Ok(Host { id, _lock: lock })
    }

    /// Whether the host with this name has stopped.
    pub fn stopped(&self, id: [u8; 16]) -> Stopped {
        let Some(directory) = &self.directory else {
            let hosts = IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            return match hosts.as_ref().and_then(|hosts| hosts.get(&id)) {
                Some(alive) if alive.strong_count() > 0 => Stopped::No,
                Some(_) => Stopped::Yes,
                None => Stopped::NotKnown,
            };
        };
        let Ok(file) = File::open(lock_path(directory, id)) else {
            return Stopped::NotKnown;
        };
        match file.try_lock_shared() {
            Ok(()) => Stopped::Yes,
            Err(TryLockError::WouldBlock) => Stopped::No,
            Err(TryLockError::Error(_)) => Stopped::NotKnown,
        }
    }
}

impl Hosts {
    /// The hosts that have a lock here, running or not.
    ///
    /// # Errors
    /// When the folder of locks cannot be read.
    pub fn known(&self) -> Result<Vec<[u8; 16]>, LedgerError> {
        let Some(directory) = &self.directory else {
            let hosts = IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(hosts.iter().flat_map(HashMap::keys).copied().collect());
        };
        let failed = |error: &std::io::Error| LedgerError::io("listing the hosts", error);
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut known = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| failed(&error))?.file_name();
            known.extend(name.to_str().and_then(|name| name.strip_suffix(".lock")).and_then(named));
        }
        Ok(known)
    }

    /// Removes the lock file of a host that has stopped. Nothing tells any more that it has: only for
    /// one that left nothing open. False when it runs, or has no file.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self, id: [u8; 16]) -> Result<bool, LedgerError> {
        let Some(directory) = self.directory.as_ref().filter(|_| self.stopped(id) == Stopped::Yes) else {
            return Ok(false);
        };
        std::fs::remove_file(lock_path(directory, id))
            .map_err(|error| LedgerError::io("removing the lock of a host that has stopped", &error))?;
        Ok(true)
    }
}

/// The host whose lock file has this stem.
fn named(stem: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if stem.len() != id.len() * 2 || !stem.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(stem.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(id)
}

fn beside(ledger: &Path) -> PathBuf {
    crate::redb::beside(ledger, "hosts")
}

fn lock_path(directory: &Path, id: [u8; 16]) -> PathBuf {
    directory.join(format!("{}.lock", hex(&id)))
}

/// The file gets its name only once it is locked: nobody ever sees a living host's file unlocked.
fn lock_file(directory: &Path, id: [u8; 16]) -> Result<File, LedgerError> {
    let failed = |error: &std::io::Error| LedgerError::io("registering this host", error);
    crate::redb::private_directory(directory).map_err(|error| failed(&error))?;
    let temporary = directory.join(format!("{}.new", hex(&id)));
    let file = crate::redb::private_file(&temporary).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(LedgerError::unavailable("this host's lock is taken"));
        }
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
    }
    std::fs::rename(&temporary, lock_path(directory, id)).map_err(|error| failed(&error))?;
    Ok(file)
}
