//! Whether a file has changed: components, the policy, tokens and keys are read again only then.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// What tells one version of a file from another without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
    /// When the file's entry changed: also what was written under an older date.
    entry_changed: (i64, i64),
}

/// None where there is no file.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let entry_changed = (metadata.ctime(), metadata.ctime_nsec());
    Some(Stamp { modified: metadata.modified().ok()?, bytes: metadata.len(), inode: metadata.ino(), entry_changed })
}
