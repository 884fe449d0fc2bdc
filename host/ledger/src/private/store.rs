//! Where wrapped keys are kept: apart from the records, so that a destroyed one is nowhere.
//!
//! A database keeps old pages, and a log keeps everything. A key must be in neither.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::event::ObjectKind;
use crate::redb::{beside, private_directory, private_file, sync_directory};
use crate::{KeyName, LedgerError, hex};

/// Name of the file with the master key that is used where the policy names none.
const MASTER: &str = "master";
/// Ending of an object's key.
const KEY: &str = "key";
/// Ending of a mark that an erasure has begun.
const MARK: &str = "erasing";
/// Bytes of any of these files; they are far shorter.
const FILE_BYTES_MAX: u64 = 4096;
/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Keeps wrapped keys. What a method says is durable when it returns.
pub trait KeyStore: Send + Sync {
    /// The wrapped key of this name.
    ///
    /// # Errors
    /// When that cannot be told: it says nothing of whether there is one.
    fn get(&self, name: &KeyName) -> Result<Option<Vec<u8>>, LedgerError>;

    /// Keeps this wrapped key unless there is one of its name; gives the one that is kept, and what holds it
    /// against [`KeyStore::claim`] until it is dropped.
    ///
    /// # Errors
    /// When it is not durable.
    fn keep(&self, name: &KeyName, wrapped: &[u8]) -> Result<(Vec<u8>, Held), LedgerError>;

    /// Destroys a key; false when there is none.
    ///
    /// # Errors
    /// When it may still be there.
    fn destroy(&self, name: &KeyName) -> Result<bool, LedgerError>;

    /// Holds a key against everybody who would begin to use it; none where there is none, or somebody holds it.
    ///
    /// # Errors
    /// When that cannot be told.
    fn claim(&self, name: &KeyName) -> Result<Option<Held>, LedgerError>;

    /// Every key there is.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn list(&self) -> Result<Vec<KeyName>, LedgerError>;

    /// Notes that the erasure of this key has begun, or that it is complete.
    ///
    /// # Errors
    /// When the note is not durable.
    fn mark(&self, name: &KeyName, begun: bool) -> Result<(), LedgerError>;

    /// The keys whose erasure has begun and is not known to be complete.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn marked(&self) -> Result<Vec<KeyName>, LedgerError>;

    /// The master key that is kept here, made if there is none and `make` says so.
    ///
    /// # Errors
    /// When it cannot be read or made.
    fn master(&self, make: bool) -> Result<Option<Vec<u8>>, LedgerError>;
}

/// Holds a key: for somebody who is about to use it, or against everybody who is.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "held for its lock")] Option<File>);

/// Keys as files of one folder beside the ledger, for its user alone.
pub struct KeyFolder {
    folder: PathBuf,
}

impl KeyFolder {
    /// The keys of the ledger in this file.
    pub fn of(ledger: &Path) -> KeyFolder {
        KeyFolder { folder: beside(ledger, "keys") }
    }

    fn path(&self, name: &KeyName, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", file_stem(name)))
    }

    fn ready(&self) -> Result<(), LedgerError> {
        let failed = |error: &std::io::Error| self.failed("making", error);
        if !self.folder.exists() {
            private_directory(&self.folder).map_err(|error| failed(&error))?;
            sync_directory(crate::redb::parent(&self.folder)).map_err(|error| failed(&error))?;
        }
        let mode = std::fs::metadata(&self.folder).map_err(|error| failed(&error))?.permissions().mode();
        if mode & OTHERS != 0 {
            let at = self.folder.display();
            return Err(LedgerError::unavailable(format!("others can enter {at}, where its keys are; chmod 700 it")));
        }
        Ok(())
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> LedgerError {
        LedgerError::io(format!("{doing} a key in {}", self.folder.display()), error)
    }

    /// A file appears under its name whole and durable, or not at all; one that is there stays.
    fn create(&self, path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
        let random: [u8; 8] = rand::random();
        let temporary = self.folder.join(format!("{}.new", hex(&random)));
        let written = private_file(&temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        let linked = written.and_then(|()| std::fs::hard_link(&temporary, path));
        let removed = std::fs::remove_file(&temporary);
        let is_new = match linked {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        removed?;
        // Where another made it, that one may not have come to make its name durable.
        sync_directory(&self.folder)?;
        Ok(is_new)
    }

    fn names(&self, ending: &str) -> Result<Vec<KeyName>, LedgerError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("listing", &error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| self.failed("listing", &error))?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(ending)?.strip_suffix('.'));
            names.extend(stem.and_then(key_name));
        }
        Ok(names)
    }

    /// Writes over it, then takes its name away. What a file system or a disk keeps of older writes is beyond
    /// this; it is a key that the master key still wraps.
    fn wipe(&self, file: &File, path: &Path) -> std::io::Result<()> {
        let length = usize::try_from(file.metadata()?.len().min(FILE_BYTES_MAX)).unwrap_or_default();
        let noise: Vec<u8> = (0..length).map(|_| rand::random()).collect();
        file.write_all_at(&noise, 0)?;
        file.sync_all()?;
        std::fs::remove_file(path)?;
        sync_directory(&self.folder)
    }
}

fn read_file(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn open_to_destroy(path: &Path) -> std::io::Result<Option<File>> {
    match std::fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl KeyStore for KeyFolder {
    fn get(&self, name: &KeyName) -> Result<Option<Vec<u8>>, LedgerError> {
        read_file(&self.path(name, KEY)).map_err(|error| self.failed("reading", &error))
    }

    fn keep(&self, name: &KeyName, wrapped: &[u8]) -> Result<(Vec<u8>, Held), LedgerError> {
        self.ready()?;
        let path = self.path(name, KEY);
        loop {
            let failed = |error: std::io::Error| self.failed("keeping", &error);
            if path.exists() {
                sync_directory(&self.folder).map_err(failed)?;
            } else {
                self.create(&path, wrapped).map_err(failed)?;
            }
            let Some(file) = open_to_destroy(&path).map_err(failed)? else { continue };
            file.lock_shared().map_err(failed)?;
            // One that was taken away before it was locked is nobody's any more.
            if file.metadata().map_err(failed)?.nlink() == 0 {
                continue;
            }
            if let Some(kept) = read_file(&path).map_err(failed)? {
                return Ok((kept, Held(Some(file))));
            }
        }
    }

    fn destroy(&self, name: &KeyName) -> Result<bool, LedgerError> {
        let path = self.path(name, KEY);
        let failed = |error: std::io::Error| self.failed("destroying", &error);
        let Some(file) = open_to_destroy(&path).map_err(failed)? else { return Ok(false) };
        match self.wipe(&file, &path) {
            // Somebody else took the name away after writing over it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                sync_directory(&self.folder).map_err(failed)?;
                Ok(true)
            }
            other => other.map(|()| true).map_err(failed),
        }
    }

    fn claim(&self, name: &KeyName) -> Result<Option<Held>, LedgerError> {
        let failed = |error: std::io::Error| self.failed("claiming", &error);
        let Some(file) = open_to_destroy(&self.path(name, KEY)).map_err(failed)? else { return Ok(None) };
        match file.try_lock() {
            Ok(()) => Ok(Some(Held(Some(file)))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn list(&self) -> Result<Vec<KeyName>, LedgerError> {
        self.names(KEY)
    }

    fn mark(&self, name: &KeyName, begun: bool) -> Result<(), LedgerError> {
        let path = self.path(name, MARK);
        let failed = |error: std::io::Error| self.failed("marking", &error);
        if begun {
            self.ready()?;
            return self.create(&path, b"").map(drop).map_err(failed);
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn marked(&self) -> Result<Vec<KeyName>, LedgerError> {
        self.names(MARK)
    }

    fn master(&self, make: bool) -> Result<Option<Vec<u8>>, LedgerError> {
        let path = self.folder.join(MASTER);
        let failed = |error: std::io::Error| self.failed("reading", &error);
        if let Some(found) = read_file(&path).map_err(failed)? {
            return Ok(Some(found));
        }
        if !make {
            return Ok(None);
        }
        self.ready()?;
        let drawn: [u8; 32] = rand::random();
        self.create(&path, format!("{}\n", hex(&drawn)).as_bytes()).map_err(failed)?;
        read_file(&path).map_err(failed)
    }
}

/// Keys in memory: of a ledger that is.
#[derive(Default)]
pub struct KeysInMemory {
    inner: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    keys: BTreeMap<KeyName, Vec<u8>>,
    marked: Vec<KeyName>,
    master: Option<Vec<u8>>,
}

impl KeysInMemory {
    fn inner(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyStore for KeysInMemory {
    fn get(&self, name: &KeyName) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(self.inner().keys.get(name).cloned())
    }

    fn keep(&self, name: &KeyName, wrapped: &[u8]) -> Result<(Vec<u8>, Held), LedgerError> {
        Ok((self.inner().keys.entry(*name).or_insert_with(|| wrapped.to_vec()).clone(), Held(None)))
    }

    fn destroy(&self, name: &KeyName) -> Result<bool, LedgerError> {
        Ok(self.inner().keys.remove(name).is_some())
    }

    fn claim(&self, name: &KeyName) -> Result<Option<Held>, LedgerError> {
        Ok(self.inner().keys.contains_key(name).then_some(Held(None)))
    }

    fn list(&self) -> Result<Vec<KeyName>, LedgerError> {
        Ok(self.inner().keys.keys().copied().collect())
    }

    fn mark(&self, name: &KeyName, begun: bool) -> Result<(), LedgerError> {
        let marked = &mut self.inner().marked;
        marked.retain(|marked| marked != name);
        marked.extend(begun.then_some(*name));
        Ok(())
    }

    fn marked(&self) -> Result<Vec<KeyName>, LedgerError> {
        Ok(self.inner().marked.clone())
    }

    fn master(&self, make: bool) -> Result<Option<Vec<u8>>, LedgerError> {
        let master = &mut self.inner().master;
        if make && master.is_none() {
            let drawn: [u8; 32] = rand::random();
            *master = Some(hex(&drawn).into_bytes());
        }
        Ok(master.clone())
    }
}

/// A key's name in letters: of what kind, of which object, the how manyth.
pub(super) fn file_stem(name: &KeyName) -> String {
    let kind = match name.kind {
        ObjectKind::Parent => "parent",
        ObjectKind::Effect => "effect",
        ObjectKind::Plan => "plan",
        ObjectKind::Task => "task",
    };
    format!("{kind}-{}-{}", hex(&name.id), name.generation)
}

fn key_name(stem: &str) -> Option<KeyName> {
    let mut words = stem.split('-');
    let kind = match words.next()? {
        "parent" => ObjectKind::Parent,
        "effect" => ObjectKind::Effect,
        "plan" => ObjectKind::Plan,
        "task" => ObjectKind::Task,
        _ => return None,
    };
    let id = super::unhex(words.next()?)?;
    let name = KeyName { kind, id, generation: words.next()?.parse().ok()? };
    (file_stem(&name) == stem).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(generation: u32) -> KeyName {
        KeyName { kind: ObjectKind::Parent, id: [7; 32], generation }
    }

    #[test]
    fn names_are_read_back() {
        for kind in ObjectKind::ALL {
            let name = KeyName { kind, ..name(3) };
            assert_eq!(key_name(&file_stem(&name)), Some(name));
        }
        for wrong in ["", "parent", "parent-07-0", "master", "x-07-1"] {
            assert_eq!(key_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_that_keeps_a_key_keeps_it_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("l.redb");
        let kept: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let keep = |n: u8| {
                let store = KeyFolder::of(&ledger);
                scope.spawn(move || store.keep(&name(0), &[n; 40]).unwrap().0)
            };
            let threads: Vec<_> = (0..8).map(keep).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(kept.iter().all(|key| *key == kept[0]));
        let store = KeyFolder::of(&ledger);
        assert_eq!(store.list().unwrap(), [name(0)]);
        assert_eq!(std::fs::read_dir(folder.path().join("l.redb.keys")).unwrap().count(), 1, "nothing else is left");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("l.redb.keys")), 0o700);
        assert_eq!(mode(&store.path(&name(0), KEY)), 0o600);
    }

    #[test]
    fn a_key_that_somebody_is_about_to_use_is_not_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyFolder::of(&folder.path().join("l.redb"));
        let (_, held) = store.keep(&name(0), &[1; 40]).unwrap();
        assert!(store.claim(&name(0)).unwrap().is_none());
        drop(held);
        let claimed = store.claim(&name(0)).unwrap();
        assert!(claimed.is_some());
        assert!(store.destroy(&name(0)).unwrap());
        assert_eq!(store.get(&name(0)).unwrap(), None);
        assert!(!store.destroy(&name(0)).unwrap());
    }

    #[test]
    fn a_folder_that_others_can_enter_keeps_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyFolder::of(&folder.path().join("l.redb"));
        store.keep(&name(0), &[1; 40]).unwrap();
        std::fs::set_permissions(&store.folder, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(store.keep(&name(1), &[1; 40]).unwrap_err().to_string().contains("chmod 700"));
    }
}
