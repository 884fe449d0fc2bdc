//! Bytes of any size, wherever they are kept.

use serde::{Deserialize, Serialize};

/// Bytes of any size. Callers give [`Stored::Inline`]; a back end keeps long ones elsewhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    /// The bytes themselves.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Kept outside the record, at a place that only the back end understands.
    Segment {
        /// Which segment.
        file: u64,
        /// Where in it.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// SHA-256 of the bytes.
        #[serde(with = "serde_bytes")]
        digest: [u8; 32],
    },
    /// Dropped by retention: only their digest is left.
    Gone {
        /// How many bytes there were.
        len: u64,
        /// SHA-256 of the bytes.
        #[serde(with = "serde_bytes")]
        digest: [u8; 32],
    },
    /// Under a key: [`crate::private`] reads them.
    Private(Box<super::Enciphered>),
}

impl Stored {
    /// No bytes.
    pub fn empty() -> Stored {
        Stored::Inline(Vec::new())
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        match self {
            Stored::Inline(bytes) => bytes.len() as u64,
            Stored::Segment { len, .. } | Stored::Gone { len, .. } => *len,
            Stored::Private(sealed) => crate::private::plain_len(sealed.bytes.len()),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Stored {
    fn default() -> Self {
        Stored::empty()
    }
}

impl From<Vec<u8>> for Stored {
    fn from(bytes: Vec<u8>) -> Self {
        Stored::Inline(bytes)
    }
}

impl std::fmt::Debug for Stored {
    // The bytes may be private: errors and logs get their length only.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "<{} bytes>", self.len())
    }
}
