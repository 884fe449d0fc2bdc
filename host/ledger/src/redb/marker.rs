//! The head marker: what the ledger must contain, kept outside it.
//!
//! A ledger that was emptied, or replaced by an older copy of itself, is a second effect. The marker
//! names the last record whose dispatch was acknowledged. Two slots are written in turn, so that a
//! torn write leaves the one before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;
use crate::record::Reader;
use crate::{LedgerError, sha256};

const MAGIC: &[u8; 8] = b"OGHEAD1\n";
const SLOT_BYTES: u64 = 512;
const BODY_BYTES: usize = 8 + 8 + 16 + 8 + 32;

/// What the marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) ledger: [u8; 16],
    pub(super) seq: u64,
    pub(super) digest: [u8; 32],
}

/// The marker file of an open ledger.
#[derive(Debug)]
pub(super) struct Marker {
    file: File,
    path: PathBuf,
    count: u64,
}

pub(super) fn path(ledger: &Path) -> PathBuf {
    files::beside(ledger, "head")
}

impl Marker {
    /// Opens the marker, making it if it is not there, and says what it says.
    pub(super) fn open(path: &Path) -> Result<(Marker, Option<Mark>), LedgerError> {
        let failed = |error: &std::io::Error| LedgerError::io(format!("the head marker {}", path.display()), error);
        let fresh = !path.exists();
        let file = files::open_private(path).map_err(|error| failed(&error))?;
        if fresh {
            files::sync_directory(files::parent(path)).map_err(|error| failed(&error))?;
        }
        let newest = (0..2).filter_map(|slot| read_slot(&file, slot)).max_by_key(|(count, _)| *count);
        let count = newest.map_or(0, |(count, _)| count);
        let mark = newest.map(|(_, mark)| mark);
        Ok((Marker { file, path: path.to_owned(), count }, mark))
    }

    /// Makes the marker of a new ledger; one that is there already is of another.
    pub(super) fn create(path: &Path, mark: Mark) -> Result<(), LedgerError> {
        let file = files::private_file(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => LedgerError::Exists { at: path.display().to_string() },
            _ => LedgerError::io(format!("the head marker {}", path.display()), &error),
        })?;
        Marker { file, path: path.to_owned(), count: 0 }.write(mark)
    }

    /// Moves the marker, durable when this returns.
    pub(super) fn write(&mut self, mark: Mark) -> Result<(), LedgerError> {
        let count = self.count + 1;
        let mut slot = Vec::with_capacity(BODY_BYTES + 32);
        slot.extend(MAGIC);
        slot.extend(count.to_be_bytes());
        slot.extend(mark.ledger);
        slot.extend(mark.seq.to_be_bytes());
        slot.extend(mark.digest);
        let check = sha256(&slot);
        slot.extend(check);
        let written = self.file.write_all_at(&slot, (count % 2) * SLOT_BYTES);
        written
            .and_then(|()| self.file.sync_data())
            .map_err(|error| LedgerError::io(format!("the head marker {}", self.path.display()), &error))?;
        self.count = count;
        Ok(())
    }
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
    let ledger = from.array().ok()?;
    let seq = u64::from_be_bytes(from.array().ok()?);
    let digest = from.array().ok()?;
    Some((count, Mark { ledger, seq, digest }))
}
