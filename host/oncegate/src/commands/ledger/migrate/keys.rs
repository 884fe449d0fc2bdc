//! The keys of a ledger that has moved: the same files in the other folder, and none that the source has not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Ending of a file that was being made when its process ended.
const UNFINISHED: &str = "new";

/// The folder of keys of the ledger at this path.
pub(super) fn beside(ledger: &Path) -> PathBuf {
    let mut name = OsString::from(ledger);
    name.push(".keys");
    PathBuf::from(name)
}

/// Copies every key, durably; one that is gone at the source is gone there as well. How many there are.
///
/// # Errors
/// A file cannot be read or written, or another one of its name is there.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<usize> {
    let names = names(from)?;
    if !names.is_empty() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(to).with_context(|| failed(to))?;
    }
    for name in &names {
        let (source, target) = (from.join(name), to.join(name));
        let bytes = fs::read(&source).with_context(|| failed(&source))?;
        put(&target, &bytes).with_context(|| failed(&target))?;
    }
    for gone in self::names(to)?.difference(&names) {
        let target = to.join(gone);
        fs::remove_file(&target).with_context(|| failed(&target))?;
    }
    if to.exists() {
        File::open(to).and_then(|folder| folder.sync_all()).with_context(|| failed(to))?;
    }
    Ok(names.len())
}

fn failed(path: &Path) -> String {
    format!("the keys were not copied: {}", path.display())
}

fn names(folder: &Path) -> anyhow::Result<BTreeSet<OsString>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.with_context(|| failed(folder))?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry.with_context(|| failed(folder))?;
        let unfinished = entry.path().extension().is_some_and(|ending| ending == UNFINISHED);
        if !unfinished && entry.file_type().with_context(|| failed(folder))?.is_file() {
            names.insert(entry.file_name());
        }
    }
    Ok(names)
}

/// The file appears whole and durable, or not at all.
fn put(target: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Ok(there) = fs::read(target) {
        if there == bytes {
            return Ok(());
        }
        bail!("there is another key of this name");
    }
    let temporary = target.with_extension(UNFINISHED);
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(fs::rename(&temporary, target)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_along_and_none_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a.keys"), folder.path().join("b.keys"));
        assert_eq!(copy(&from, &to).unwrap(), 0);
        assert!(!to.exists());
        fs::create_dir(&from).unwrap();
        fs::write(from.join("1.key"), "one").unwrap();
        fs::write(from.join("2.key"), "two").unwrap();
        fs::write(from.join("x.new"), "half").unwrap();
        assert_eq!(copy(&from, &to).unwrap(), 2);
        fs::remove_file(from.join("2.key")).unwrap();
        assert_eq!(copy(&from, &to).unwrap(), 1, "what was erased is gone there too");
        assert_eq!(names(&to).unwrap(), BTreeSet::from([OsString::from("1.key")]));
        fs::write(to.join("1.key"), "other").unwrap();
        assert!(format!("{:#}", copy(&from, &to).unwrap_err()).contains("another key"));
    }
}
