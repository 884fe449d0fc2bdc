//! The head marker of one writer: how far its commits were acknowledged, kept outside the database.
//!
//! A database restored to the past has forgotten effects. Each writer counts its statements in a row of the
//! database, in the same commit as what it stores, and here once a dispatch among them was acknowledged: a
//! database whose count is lower than this file's lacks something.

use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::record::Reader;
use crate::redb::{beside, parent, private_directory, private_file, sync_directory};
use crate::{LedgerError, hex, sha256};

const MAGIC: &[u8; 8] = b"OGTICK1\n";
/// Two slots are written in turn, so that a torn write leaves the one before.
const SLOT_BYTES: u64 = 512;
const BODY_BYTES: usize = 8 + 8 + 16 + 16 + 8;
const SUFFIX: &str = "head";

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) ledger: [u8; 16],
    pub(super) writer: [u8; 16],
    pub(super) tick: i64,
}

/// The marker of a living writer, locked while it lives.
pub(super) struct Marker {
    file: File,
    path: PathBuf,
    count: u64,
    mark: Mark,
}

/// A marker that was found.
pub(super) struct Found {
    path: PathBuf,
    /// None where no slot of it can be read.
    pub(super) mark: Option<Mark>,
}

fn failed(path: &Path, error: &std::io::Error) -> LedgerError {
    LedgerError::io(format!("the head marker {}", path.display()), error)
}

impl Marker {
    /// Makes the marker of a new writer, durable with its name when this returns.
    pub(super) fn create(ledger: &Path, mark: Mark) -> Result<Marker, LedgerError> {
        let folder = beside(ledger, "heads");
        let path = folder.join(format!("{}.{SUFFIX}", hex(&mark.writer)));
        let made = private_directory(&folder).and_then(|()| private_file(&path));
        let file = made.map_err(|error| failed(&path, &error))?;
        file.try_lock().map_err(|error| failed(&path, &error.into()))?;
        let mut marker = Marker { file, path, count: 0, mark };
        marker.write()?;
        let synced = sync_directory(&folder).and_then(|()| sync_directory(parent(&folder)));
        synced.map_err(|error| failed(&marker.path, &error))?;
        Ok(marker)
    }

    /// Says that the statements up to this one are acknowledged, durable when this returns.
    pub(super) fn advance(&mut self, tick: i64) -> Result<(), LedgerError> {
        self.mark.tick = self.mark.tick.max(tick);
        self.write()
    }

    fn write(&mut self) -> Result<(), LedgerError> {
        let count = self.count + 1;
        let mut slot = MAGIC.to_vec();
        slot.extend(count.to_be_bytes());
        slot.extend(self.mark.ledger);
        slot.extend(self.mark.writer);
        slot.extend(self.mark.tick.to_be_bytes());
        let check = sha256(&slot);
        slot.extend(check);
        let written = self.file.write_all_at(&slot, (count % 2) * SLOT_BYTES).and_then(|()| self.file.sync_data());
        written.map_err(|error| failed(&self.path, &error))?;
        self.count = count;
        Ok(())
    }
}

impl Found {
    /// Whether its writer lives.
    pub(super) fn is_held(&self) -> Result<bool, LedgerError> {
        match File::open(&self.path).and_then(|file| file.try_lock().map_err(std::io::Error::from)) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&self.path, &error)),
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.path.exists()
    }

    /// Removes it unless its writer lives, which it says. Only for one that a newer one replaces.
    pub(super) fn retire(&self) -> Result<bool, LedgerError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            // Another process was quicker.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(&self.path, &error)),
        };
        match file.try_lock() {
            Ok(()) => std::fs::remove_file(&self.path).map(|()| true).map_err(|error| failed(&self.path, &error)),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(failed(&self.path, &error)),
        }
    }
}

/// All markers on this machine.
pub(super) fn all(ledger: &Path) -> Result<Vec<Found>, LedgerError> {
    let folder = beside(ledger, "heads");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&folder, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(&folder, &error))?.path();
        if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
            match File::open(&path) {
                Ok(file) => found.push(Found { mark: newest(&file), path }),
                // Another process has replaced it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, &error)),
            }
        }
    }
    Ok(found)
}

fn newest(file: &File) -> Option<Mark> {
    (0..2).filter_map(|slot| read_slot(file, slot)).max_by_key(|(count, _)| *count).map(|(_, mark)| mark)
}

fn read_slot(file: &File, slot: u64) -> Option<(u64, Mark)> {
    let mut bytes = [0; BODY_BYTES + 32];
    file.read_exact_at(&mut bytes, slot * SLOT_BYTES).ok()?;
    let (body, check) = bytes.split_at(BODY_BYTES);
    if check != sha256(body) {
        return None;
    }
    let mut from = Reader(body);
    if from.take(MAGIC.len()).ok()? != MAGIC {
        return None;
    }
    let count = u64::from_be_bytes(from.array().ok()?);
    let (ledger, writer) = (from.array().ok()?, from.array().ok()?);
    Some((count, Mark { ledger, writer, tick: i64::from_be_bytes(from.array().ok()?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_write_leaves_the_mark_before() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        let mark = Mark { ledger: [1; 16], writer: [2; 16], tick: 0 };
        let mut marker = Marker::create(&ledger, mark).unwrap();
        marker.advance(8).unwrap();
        marker.advance(9).unwrap();
        assert_eq!(all(&ledger).unwrap()[0].mark, Some(Mark { tick: 9, ..mark }));
        marker.file.write_all_at(b"torn", SLOT_BYTES + 20).unwrap();
        assert_eq!(all(&ledger).unwrap()[0].mark, Some(Mark { tick: 8, ..mark }));
        assert!(!all(&ledger).unwrap()[0].retire().unwrap(), "its writer lives");
        drop(marker);
        assert!(all(&ledger).unwrap()[0].retire().unwrap());
        assert!(all(&ledger).unwrap().is_empty());
    }
}
