//! What can go wrong with a ledger, each by its own name.

use serde::{Deserialize, Serialize};

use crate::{Expect, StreamId};

/// Why a ledger did not do what was asked. Nothing was stored unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another writer was first. Read the stream again and decide anew.
    #[error("{stream} was expected at {expected:?} and is at version {found}: read it again")]
    Conflict {
        /// The stream.
        stream: StreamId,
        /// What the append expected.
        expected: Expect,
        /// The version found.
        found: u64,
    },
    /// A stated condition does not hold.
    #[error("{stream}: {why}")]
    Condition {
        /// The stream.
        stream: StreamId,
        /// Which condition, and what was found.
        why: String,
    },
    /// The ledger cannot be written or reached now. An append that was under way may or may not
    /// have been stored: read the stream again.
    #[error("the ledger is not available: {why}; read the stream again before deciding anything")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The storage is full. As [`LedgerError::Unavailable`].
    #[error("the ledger's storage is full: {why}; free space, then read the stream again")]
    Full {
        /// What happened.
        why: String,
    },
    /// The ledger lacks something that was once acknowledged: an older copy, or a lost marker.
    #[error(
        "the ledger {at} is behind its head marker: {why}; find the newest copy, or accept it with `oncegate ledger trust --reason …`"
    )]
    Behind {
        /// Which ledger.
        at: String,
        /// What is missing.
        why: String,
    },
    /// Another host or an operator fenced this one. Nothing was stored; what it begins anew after reading again may be.
    #[error("this host ({host}) was fenced: nothing was stored; read the stream again before deciding anything")]
    Fenced {
        /// Its name.
        host: String,
    },
    /// Written by a newer program.
    #[error("the ledger {at} was written by a newer program: {why}; use that version of oncegate")]
    Newer {
        /// Which ledger.
        at: String,
        /// What this program does not know.
        why: String,
    },
    /// There is no ledger.
    #[error("there is no ledger at {at}; create one with `oncegate ledger init`")]
    Missing {
        /// Where one was looked for.
        at: String,
    },
    /// A ledger is there already.
    #[error("there is something at {at} already; a ledger is never created over it")]
    Exists {
        /// Where.
        at: String,
    },
    /// The file is there and holds nothing: a ledger that was emptied.
    #[error("the ledger {at} is an empty file; restore the newest copy, a new ledger would forget every effect")]
    Empty {
        /// Which file.
        at: String,
    },
    /// What is there is not this ledger.
    #[error("{at} is not this ledger: {why}")]
    Foreign {
        /// Where.
        at: String,
        /// What is there instead.
        why: String,
    },
    /// Everybody may write it: what it says proves nothing.
    #[error(
        "{at} can be written by everybody, so what the ledger says proves nothing; make it the host's alone (chmod o-w), then look with `oncegate ledger verify`"
    )]
    Exposed {
        /// Which file or folder.
        at: String,
    },
    /// Stored bytes are not what was written.
    #[error("the ledger is damaged: {why}; run `oncegate ledger verify` and restore the newest copy")]
    Damaged {
        /// Which bytes.
        why: String,
    },
    /// It was sealed when its contents moved elsewhere.
    #[error("the ledger {at} was sealed by a migration; use the ledger it moved to{}", told(to.as_deref()))]
    Sealed {
        /// Which ledger.
        at: String,
        /// Where it went, where that was looked up.
        #[serde(default)]
        to: Option<String>,
    },
    /// Retention dropped these bytes; their digest is known.
    #[error("the bytes sha256:{digest} were dropped by retention")]
    Gone {
        /// SHA-256 of what was stored, in hex.
        digest: String,
    },
    /// Their erasure is on record.
    #[error("these bytes were erased: their key is destroyed, which is on record")]
    Erased,
    /// The master key that their key is wrapped by is not here.
    #[error("these bytes are encrypted, and cannot be read here: {why}")]
    Locked {
        /// Which key is needed.
        why: String,
    },
    /// Their key is gone, and nobody decided that.
    #[error(
        "the key {key} is missing and no erasure is on record, so what it encrypted cannot be read; restore the folder of keys, or say with `oncegate ledger erase` that it is gone for good"
    )]
    KeyMissing {
        /// Its name, as the folder of keys has it.
        key: String,
    },
    /// The request itself is wrong.
    #[error("the ledger was asked for something impossible: {why}")]
    Invalid {
        /// What is wrong with it.
        why: String,
    },
}

fn told(to: Option<&str>) -> String {
    to.map(|to| format!(", {to}")).unwrap_or_default()
}

impl LedgerError {
    /// Whether stored bytes were found wrong (exit code 6).
    pub fn is_damaged(&self) -> bool {
        matches!(self, LedgerError::Damaged { .. } | LedgerError::Empty { .. } | LedgerError::KeyMissing { .. })
    }

    /// Whether no effect may be dispatched while this lasts (`ledger_unavailable`).
    pub fn refuses_effects(&self) -> bool {
        !matches!(
            self,
            LedgerError::Conflict { .. }
                | LedgerError::Condition { .. }
                | LedgerError::Gone { .. }
                | LedgerError::Erased
                | LedgerError::Locked { .. }
                | LedgerError::KeyMissing { .. }
                | LedgerError::Invalid { .. }
        )
    }

    /// Whether stored bytes cannot be had, while the record that they belong to is whole: who they are of, and
    /// what that came to, is known all the same.
    pub fn withholds_bytes(&self) -> bool {
        matches!(
            self,
            LedgerError::Gone { .. }
                | LedgerError::Erased
                | LedgerError::Locked { .. }
                | LedgerError::KeyMissing { .. }
        )
    }

    pub(crate) fn damaged(why: impl std::fmt::Display) -> LedgerError {
        LedgerError::Damaged { why: why.to_string() }
    }

    pub(crate) fn unavailable(why: impl std::fmt::Display) -> LedgerError {
        LedgerError::Unavailable { why: why.to_string() }
    }

    /// An error of the file system, said of what was being done.
    pub(crate) fn io(doing: impl std::fmt::Display, error: &std::io::Error) -> LedgerError {
        let why = format!("{doing}: {error}");
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => LedgerError::Full { why },
            _ => LedgerError::Unavailable { why },
        }
    }
}
