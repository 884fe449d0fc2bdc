//! Large bytes, in append-only files beside the ledger: half the writes of keeping them in it.
//!
//! Bytes are synced before the row that names them is committed. What a crash leaves behind without
//! a row is never named by one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::files;
use crate::{LedgerError, hex, sha256};

/// A segment is closed at this size, so that old ones can be archived or dropped whole.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Where large bytes are read.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    directory: PathBuf,
}

/// Where large bytes are written, by the one committer.
#[derive(Debug)]
pub(super) struct Writer {
    segments: Segments,
    open: Option<Open>,
    unsynced: bool,
}

#[derive(Debug)]
struct Open {
    number: u64,
    file: File,
    end: u64,
}

impl Segments {
    pub(super) fn at(directory: PathBuf) -> Segments {
        Segments { directory }
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:06}.seg"))
    }

    /// Reads and verifies.
    pub(super) fn load(&self, number: u64, offset: u64, len: u64, digest: &[u8; 32]) -> Result<Vec<u8>, LedgerError> {
        let path = self.path(number);
        let failed = |why: String| LedgerError::damaged(format!("{}: {why}", path.display()));
        let file = File::open(&path).map_err(|error| failed(error.to_string()))?;
        let size = file.metadata().map_err(|error| failed(error.to_string()))?.len();
        // Checked before memory is taken for a length that may be damaged.
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(failed(format!("{len} bytes at {offset} are not in it")));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|error| failed(error.to_string()))?];
        file.read_exact_at(&mut bytes, offset).map_err(|error| failed(error.to_string()))?;
        if sha256(&bytes) != *digest {
            return Err(failed(format!("{len} bytes at {offset} do not match sha256:{}", hex(digest))));
        }
        Ok(bytes)
    }

    /// The numbers of all segments there are, in order.
    pub(super) fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            numbers.extend(Path::new(&name).file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn last(&self) -> io::Result<Option<u64>> {
        Ok(self.numbers()?.last().copied())
    }
}

impl Writer {
    pub(super) fn new(segments: Segments) -> Writer {
        Writer { segments, open: None, unsynced: false }
    }

    /// Appends, not yet durable; returns segment and offset.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(u64, u64), LedgerError> {
        self.try_append(bytes).map_err(|error| self.failed(&error))
    }

    /// Makes everything appended durable.
    pub(super) fn sync(&mut self) -> Result<(), LedgerError> {
        if let Some(open) = self.open.as_ref().filter(|_| self.unsynced) {
            open.file.sync_data().map_err(|error| self.failed(&error))?;
        }
        self.unsynced = false;
        Ok(())
    }

    /// How far bytes are written: segment and offset. What lies before it is committed or dead.
    pub(super) fn end(&self) -> Result<(u64, u64), LedgerError> {
        if let Some(open) = &self.open {
            return Ok((open.number, open.end));
        }
        let found = self.segments.last().and_then(|last| match last {
            Some(number) => Ok((number, std::fs::metadata(self.segments.path(number))?.len())),
            None => Ok((0, 0)),
        });
        found.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> LedgerError {
        LedgerError::io(format!("writing to {}", self.segments.directory.display()), error)
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<(u64, u64)> {
        let full = self.open.as_ref().is_some_and(|open| open.end >= SEGMENT_BYTES_MAX);
        if full {
            if let Some(open) = &self.open {
                open.file.sync_data()?;
            }
            let next = self.open.as_ref().map_or(1, |open| open.number + 1);
            self.open = Some(self.create(next)?);
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.reopen()?,
        };
        open.file.write_all_at(bytes, open.end)?;
        let place = (open.number, open.end);
        open.end += bytes.len() as u64;
        self.open = Some(open);
        self.unsynced = true;
        Ok(place)
    }

    fn reopen(&self) -> io::Result<Open> {
        let Some(number) = self.segments.last()? else {
            files::private_directory(&self.segments.directory)?;
            files::sync_directory(files::parent(&self.segments.directory))?;
            return self.create(1);
        };
        let file = OpenOptions::new().read(true).write(true).open(self.segments.path(number))?;
        let end = file.metadata()?.len();
        Ok(Open { number, file, end })
    }

    fn create(&self, number: u64) -> io::Result<Open> {
        let path = self.segments.path(number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        files::sync_directory(&self.segments.directory)?;
        Ok(Open { number, file, end: 0 })
    }
}
