//! An event whose private parts are encrypted, and bytes that are.

use serde::{Deserialize, Serialize};

use super::{Event, Stored};

/// What a key belongs to. The codes are part of the stored format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ObjectKind {
    /// What effects of a tenant belong to, by the context fact `parent`.
    Parent = 1,
    /// One effect that belongs to nothing.
    Effect = 2,
    /// A frozen plan that belongs to nothing.
    Plan = 3,
    /// A task that belongs to nothing.
    Task = 4,
}

impl ObjectKind {
    /// Every kind, in the order of the codes.
    pub const ALL: [ObjectKind; 4] = [ObjectKind::Parent, ObjectKind::Effect, ObjectKind::Plan, ObjectKind::Task];
}

/// One key: of an object, and of the so manyth time that it has one. Erasing destroys the key; what is stored
/// later for the same object has the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyName {
    /// What it belongs to.
    pub kind: ObjectKind,
    /// Which one: the id of the object's stream.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 32],
    /// How often the object was erased before.
    pub generation: u32,
}

/// An event of which [`crate::private`] encrypted the private parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// The key that they are under.
    pub key: KeyName,
    /// The event; its private bytes are ciphertext, its private texts are empty and its private digests zeros.
    pub event: Event,
    /// Ciphertext of the private texts and digests.
    #[serde(with = "serde_bytes")]
    pub texts: Vec<u8>,
}

/// Bytes as they lie in the ledger, under a key. Made when an event is read, never stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enciphered {
    /// The key that they are under.
    pub key: KeyName,
    /// The stream that they stand in; they are of no use in another.
    pub stream: crate::StreamId,
    /// What they are of; they are of no use as anything else.
    pub part: u8,
    /// Their erasure is on record.
    pub erased: bool,
    /// The ciphertext.
    pub bytes: Stored,
}
