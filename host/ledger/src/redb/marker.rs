//! The head marker: what the ledger must contain, kept outside it.
//!
//! A ledger that was emptied, or replaced by an older copy of itself, is a second effect. The marker
//! names the last record whose dispatch was acknowledged. Slots are written in turn, one for all that is
//! written between two syncs, so that a torn write leaves the one before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;
use crate::record::Reader;
use crate::{LedgerError, sha256};

const MAGIC: &[u8; 8] = b"OGHEAD1\n";
const SLOT_BYTES: u64 = 512;
/// One is durable, one is being synced, and one is being written.
const SLOTS: u64 = 3;
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
    /// The round that was found in it.
    found: u64,
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
        let newest = (0..SLOTS).filter_map(|slot| read_slot(&file, slot)).max_by_key(|(round, _)| *round);
        let found = newest.map_or(0, |(round, _)| round);
        let mark = newest.map(|(_, mark)| mark);
        Ok((Marker { file, path: path.to_owned(), found }, mark))
    }

    /// Makes the marker of a new ledger; one that is there already is of another.
    pub(super) fn create(path: &Path, mark: Mark) -> Result<(), LedgerError> {
        let file = files::private_file(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => LedgerError::Exists { at: path.display().to_string() },
            _ => LedgerError::io(format!("the head marker {}", path.display()), &error),
        })?;
        let marker = Marker { file, path: path.to_owned(), found: 0 };
        marker.write(mark, marker.next_round())?;
        marker.sync()
    }

    /// The round of what is written first: its slot holds nothing that is needed.
    pub(super) fn next_round(&self) -> u64 {
        self.found + 1
    }

    /// Moves the marker, also for a reader in another process; durable only once it was synced. Each round has
    /// a slot, and takes the one of three rounds before.
    pub(super) fn write(&self, mark: Mark, round: u64) -> Result<(), LedgerError> {
        let mut slot = Vec::with_capacity(BODY_BYTES + 32);
        slot.extend(MAGIC);
        slot.extend(round.to_be_bytes());
        slot.extend(mark.ledger);
        slot.extend(mark.seq.to_be_bytes());
        slot.extend(mark.digest);
        let check = sha256(&slot);
        slot.extend(check);
        let written = self.file.write_all_at(&slot, (round % SLOTS) * SLOT_BYTES);
        written.map_err(|error| self.failed(&error))
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), LedgerError> {
        self.file.sync_data().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> LedgerError {
        LedgerError::io(format!("the head marker {}", self.path.display()), error)
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
    let round = u64::from_be_bytes(from.array().ok()?);
    let ledger = from.array().ok()?;
    let seq = u64::from_be_bytes(from.array().ok()?);
    let digest = from.array().ok()?;
    Some((round, Mark { ledger, seq, digest }))
}
