//! Streams, records and appends: what a ledger is made of.

use serde::{Deserialize, Serialize};

use crate::event::TaskOwner;
use crate::{Event, StateTag};

/// What a stream is about. The codes are part of the stored format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum StreamKind {
    /// The ledger itself: created, trusted, sealed.
    Ledger = 1,
    /// One effect, by its key.
    Effect = 2,
    /// A permit's balance.
    Permit = 3,
    /// A frozen plan.
    Plan = 4,
    /// An exclusive claim.
    Claim = 5,
    /// A contract's text, by its digest.
    Contract = 6,
    /// The recipe in force for an owner and action.
    Recipe = 7,
    /// An account bound to an endpoint.
    Account = 8,
    /// A lookup request, and the effects whose keys it resolved.
    Lookup = 9,
    /// A changing value pinned at its first resolution.
    Pin = 10,
    /// Ordinals taken in a scope.
    Sequence = 11,
    /// A host incarnation.
    Host = 12,
    /// A provider's identifier at an account, and the effects that it is the receipt of.
    Receipt = 13,
    /// What effects belong to: a conversation, a case, a job.
    Parent = 14,
    /// A call that goes on while its caller asks for it later; and whose there are.
    Task = 15,
    /// What a client calls one of its calls, and the effects of that call.
    ClientKey = 16,
}

impl StreamKind {
    /// Every kind, in the order of the codes.
    pub const ALL: [StreamKind; 16] = [
        StreamKind::Ledger,
        StreamKind::Effect,
        StreamKind::Permit,
        StreamKind::Plan,
        StreamKind::Claim,
        StreamKind::Contract,
        StreamKind::Recipe,
        StreamKind::Account,
        StreamKind::Lookup,
        StreamKind::Pin,
        StreamKind::Sequence,
        StreamKind::Host,
        StreamKind::Receipt,
        StreamKind::Parent,
        StreamKind::Task,
        StreamKind::ClientKey,
    ];

    /// The stored code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this stored code.
    pub fn from_code(code: u8) -> Option<StreamKind> {
        StreamKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Names one stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId {
    /// What it is about.
    pub kind: StreamKind,
    /// Which one: a digest, so that names from outside never shape a stored key.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 32],
}

impl StreamId {
    /// The stream of an effect.
    pub fn effect(key: [u8; 32]) -> StreamId {
        StreamId { kind: StreamKind::Effect, id: key }
    }

    /// The stream of the ledger itself.
    pub fn ledger() -> StreamId {
        StreamId { kind: StreamKind::Ledger, id: [0; 32] }
    }

    /// The stream of a provider's identifier at an account.
    pub fn receipt(account: &str, receipt: &str) -> StreamId {
        StreamId { kind: StreamKind::Receipt, id: named(&[account, receipt]) }
    }

    /// The stream of the account that an owner's action is done under for a tenant.
    pub fn account(tenant: &str, owner: &str, action: &str) -> StreamId {
        StreamId { kind: StreamKind::Account, id: named(&[tenant, owner, action]) }
    }

    /// The stream of what effects of a tenant belong to.
    pub fn parent(tenant: &str, parent: &str) -> StreamId {
        StreamId { kind: StreamKind::Parent, id: named(&[tenant, parent]) }
    }

    /// The stream of a permit's document: granted, perhaps revoked.
    pub fn permit(tenant: &str, permit: &str) -> StreamId {
        StreamId { kind: StreamKind::Permit, id: named(&[tenant, permit]) }
    }

    /// The stream of how many effects a permit has room for.
    pub fn permit_count(tenant: &str, permit: &str) -> StreamId {
        StreamId { kind: StreamKind::Permit, id: named(&[tenant, permit, "count"]) }
    }

    /// The stream of what is left of a permit's sum of a field.
    pub fn permit_sum(tenant: &str, permit: &str, field: &str) -> StreamId {
        StreamId { kind: StreamKind::Permit, id: named(&[tenant, permit, "sum", field]) }
    }

    /// The stream of a real-world purpose, by the claim's name and the values that identify it.
    pub fn claim(tenant: &str, name: &str, values: &[&str]) -> StreamId {
        let mut names = vec![tenant, name];
        names.extend(values);
        StreamId { kind: StreamKind::Claim, id: named(&names) }
    }

    /// The stream of one task, by its random name.
    pub fn task(id: [u8; 32]) -> StreamId {
        StreamId { kind: StreamKind::Task, id }
    }

    /// The stream of which tasks an owner has.
    pub fn tasks_of(owner: &TaskOwner) -> StreamId {
        let mut names = vec!["of"];
        for name in [&owner.tenant, &owner.permit] {
            names.extend(name.as_deref().map_or(["", ""], |name| ["is", name]));
        }
        StreamId { kind: StreamKind::Task, id: named(&names) }
    }

    /// The stream of who has tasks.
    pub fn task_owners() -> StreamId {
        StreamId { kind: StreamKind::Task, id: [0; 32] }
    }

    /// The stream of a client's own idempotency key.
    pub fn client_key(tenant: &str, key: &str) -> StreamId {
        StreamId { kind: StreamKind::ClientKey, id: named(&[tenant, key]) }
    }

    /// The stream of a host incarnation.
    pub fn host(id: [u8; 16]) -> StreamId {
        let mut padded = [0; 32];
        padded[..16].copy_from_slice(&id);
        StreamId { kind: StreamKind::Host, id: padded }
    }

    /// The stored key: the kind's code, then the id.
    pub fn to_bytes(self) -> [u8; 33] {
        let mut bytes = [0; 33];
        bytes[0] = self.kind.code();
        bytes[1..].copy_from_slice(&self.id);
        bytes
    }

    /// Reads a stored key.
    pub fn from_bytes(bytes: &[u8]) -> Option<StreamId> {
        let (code, id) = bytes.split_first()?;
        Some(StreamId { kind: StreamKind::from_code(*code)?, id: id.try_into().ok()? })
    }
}

/// SHA-256 over length-prefixed names, so that no two lists of names collide.
fn named(names: &[&str]) -> [u8; 32] {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend((name.len() as u64).to_be_bytes());
        bytes.extend(name.as_bytes());
    }
    crate::sha256(&bytes)
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?} {}", self.kind, crate::hex(&self.id))
    }
}

impl std::fmt::Debug for StreamId {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, to)
    }
}

/// What must be true of a stream for an append to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// The stream is at this version; 0 means that it must not exist.
    Version(u64),
    /// Nothing. Concurrent writers are put in some order.
    Any,
    /// The stream's balance (of a permit) is at least this much.
    Remaining {
        /// How much must be left.
        at_least: u64,
    },
}

/// One event to add to one stream, or one condition. Items of a batch are accepted or refused together; several may
/// name the same stream, each then expects the version that the one before it leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// Where to.
    pub stream: StreamId,
    /// Under which condition.
    pub expect: Expect,
    /// What happened; none only checks the condition, and nothing is stored.
    pub event: Option<Event>,
    /// What [`crate::Ledger::list`] finds the stream under afterwards; `None` leaves it as it was.
    pub state: Option<StateTag>,
    /// The mark outside the ledger must name it before anything is done about it: for dispatches, whose loss
    /// together with a rolled-back ledger would be a second effect. The append returns when it is durable, and
    /// [`crate::Ledger::marked`] when it is named.
    pub marks_head: bool,
}

impl Append {
    /// An append that neither lists nor marks.
    pub fn new(stream: StreamId, expect: Expect, event: Event) -> Append {
        Append { stream, expect, event: Some(event), state: None, marks_head: false }
    }

    /// A condition on a stream that the batch does not write: what was read there must still hold
    /// when the batch is committed.
    pub fn guard(stream: StreamId, expect: Expect) -> Append {
        Append { stream, expect, event: None, state: None, marks_head: false }
    }
}

/// The end of a stream. While it is the same, so is everything before it: the digests are a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The version of its last record.
    pub version: u64,
    /// The digest of its last record.
    pub digest: [u8; 32],
}

impl Tip {
    /// The end of what was read of a stream; none of one that does not exist.
    pub fn of(records: &[Record]) -> Option<Tip> {
        records.last().map(|last| Tip { version: last.version, digest: last.digest })
    }
}

/// One stored event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the ledger: rises, and may have gaps.
    pub seq: u64,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its place in the stream, from 1.
    pub version: u64,
    /// What happened.
    pub event: Event,
    /// Digest over stream, version, previous digest and event. Where large bytes are kept is not in it.
    #[serde(with = "serde_bytes")]
    pub digest: [u8; 32],
    /// The digest of the record before it in the stream; zeros at version 1.
    #[serde(with = "serde_bytes")]
    pub previous: [u8; 32],
    /// The event as the digest covers it: its stored bytes, with long ones replaced by their digests.
    #[serde(with = "serde_bytes")]
    pub sealed: Vec<u8>,
}
