//! Files beside the ledger, private to their owner.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::LedgerError;

/// `L` and `suffix` give `L.suffix`.
pub(crate) fn beside(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes a directory and its parents that only this user can enter; existing ones stay as they are.
pub(crate) fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a new file that only this user can read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a private file, making it if it is not there.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, LedgerError> {
    std::path::absolute(path).map_err(|error| LedgerError::io(path.display(), &error))
}

/// Permission of everybody to write.
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit nobody replaces the files of others.
const STICKY: u32 = 0o1000;

/// Whether everybody may change a file of this mode, or replace what lies in a folder of it.
#[must_use]
pub fn everybody_can_change(mode: u32) -> bool {
    mode & OTHERS_WRITE != 0 && mode & STICKY == 0
}

/// Refuses a ledger that everybody may write or replace, it or what lies beside it.
pub(super) fn refuse_if_exposed(ledger: &Path) -> Result<(), LedgerError> {
    let beside = ["head", "lock", "segments", "hosts", "keys"].map(|suffix| beside(ledger, suffix));
    for path in [ledger, parent(ledger)].into_iter().chain(beside.iter().map(PathBuf::as_path)) {
        let mode = match std::fs::metadata(path) {
            Ok(metadata) => metadata.permissions().mode(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(LedgerError::io(path.display(), &error)),
        };
        if everybody_can_change(mode) {
            return Err(LedgerError::Exposed { at: path.display().to_string() });
        }
    }
    Ok(())
}

/// First bytes of every redb file.
const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// Refuses by name what is not even a redb file, before redb could take it for a new one.
pub(super) fn check_exists(path: &Path) -> Result<(), LedgerError> {
    use std::io::Read;
    let at = path.display().to_string();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LedgerError::Missing { at });
        }
        Err(error) => return Err(LedgerError::io(format!("opening {at}"), &error)),
    };
    let metadata = file.metadata().map_err(|error| LedgerError::io(&at, &error))?;
    if !metadata.is_file() {
        return Err(LedgerError::Foreign { at, why: "it is not a file".to_owned() });
    }
    if metadata.len() == 0 {
        return Err(LedgerError::Empty { at });
    }
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == MAGIC => Ok(()),
        _ => Err(LedgerError::Foreign { at, why: "it is not a redb file".to_owned() }),
    }
}
