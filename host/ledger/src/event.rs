//! Events: facts that are stored. Field names are part of the stored format; new ones get a default.

mod intent;
mod private;
mod stored;
mod task;

use serde::{Deserialize, Serialize};

pub use intent::{Dispatch, PermitUse, Proposal, Ties, Tombstone};
pub use private::{Enciphered, KeyName, ObjectKind, Private};
pub use stored::Stored;
pub use task::{TaskBegun, TaskEnding, TaskOwner, TaskRef};

/// How the provider's answer ended on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Whole.
    Complete,
    /// The connection closed before the announced end.
    Truncated,
    /// A deadline passed.
    TimedOut,
    /// The connection was reset.
    Reset,
    /// More than the host keeps.
    TooLarge,
    /// Anything else.
    Failed,
}

/// What an attempt turned out to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The effect exists and is final.
    Done {
        /// The provider's identifier for it; never empty.
        receipt: String,
    },
    /// The effect exists and is not final.
    Issued {
        /// The provider's identifier for it, where one is known.
        receipt: Option<String>,
    },
    /// Proof that this attempt had no effect.
    NoEffect {
        /// The provider's reason.
        reason: String,
    },
    /// Neither is known.
    Unknown {
        /// Why not.
        why: String,
    },
}

/// What a settle lookup found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettleVerdict {
    /// Exactly one object is this effect.
    One {
        /// Its identifier.
        receipt: String,
        /// Fields that should be equal and are not.
        mismatched: Vec<String>,
    },
    /// More than one object could be it.
    Many {
        /// Their identifiers.
        receipts: Vec<String>,
    },
    /// It is not there, and would be by now. Whether `absent-after` has passed is for the host,
    /// which knows the contract and its own monotonic clock.
    Absent {
        /// Time since the observer saw the last sender stopped.
        since_stop_ms: u64,
        /// How many times it was looked for; at least two.
        looks: u32,
        /// A known object that the same lookup with the same credential did find.
        control: String,
    },
    /// The lookup could not tell.
    Undetermined {
        /// Why not.
        why: String,
    },
}

/// A fact. `at` is milliseconds of Unix time everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "fields that repeat their name; every variant says what it means")]
pub enum Event {
    // Of the ledger.
    /// The ledger came into being.
    LedgerCreated {
        #[serde(with = "serde_bytes")]
        id: [u8; 16],
        at: u64,
    },
    /// An operator accepted a ledger that was behind its marker, at this place.
    LedgerTrusted { actor: String, reason: String, seq: u64, at: u64 },
    /// Its contents moved; nothing is appended after this.
    LedgerSealed { to: String, actor: String, reason: String, at: u64 },

    // Of the things around effects.
    /// A contract that rows are judged by.
    ContractSeen {
        text: String,
        #[serde(with = "serde_bytes")]
        digest: [u8; 32],
    },
    /// The recipe in force for an owner and action.
    RecipeBound {
        #[serde(with = "serde_bytes")]
        recipe: [u8; 32],
        #[serde(with = "serde_bytes")]
        contract: [u8; 32],
    },
    /// Whose an action is: the name that its effects are kept under, and by what the component is known.
    OwnerBound { owner: String, component: String, by: String },
    /// What an account's name stands for.
    AccountBound {
        account: String,
        endpoint: String,
        url: String,
        credential: Option<String>,
        /// What the provider itself says the account is.
        #[serde(default)]
        proof: Option<String>,
    },
    /// An operator said that the account's label, URL or credential changed and it is the same account.
    AccountRenamed {
        account: String,
        endpoint: String,
        url: String,
        credential: Option<String>,
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// A lookup resolved the key of this effect.
    LookupResolved {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
    },
    /// An ordinal was taken.
    SequenceTaken {
        n: u64,
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
    },
    /// The first resolution of a changing value.
    Pinned { value: String },
    /// A host incarnation began.
    HostStarted {
        #[serde(with = "serde_bytes")]
        host: [u8; 16],
        at: u64,
    },
    /// An operator says that it sends no more.
    HostFenced {
        #[serde(with = "serde_bytes")]
        host: [u8; 16],
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// A permit with a balance: a count, or a sum in a stream of its own.
    PermitGranted { amount: u64, document: Stored, actor: String, reason: String, at: u64 },
    /// Part of the balance belongs to this effect's key.
    PermitReserved {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
        amount: u64,
        at: u64,
    },
    /// Given back, after proof that nothing happened.
    PermitReleased {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
        amount: u64,
        at: u64,
    },
    /// Nothing may be reserved any more.
    PermitRevoked { actor: String, reason: String, at: u64 },
    /// A plan was frozen, with the keys of its rows.
    PlanFrozen {
        plan: String,
        #[serde(with = "crate::wire::digests")]
        effects: Vec<[u8; 32]>,
        document: Stored,
        actor: String,
        at: u64,
        /// The id of the stream of what its effects belong to.
        #[serde(default, with = "serde_bytes")]
        parent: Option<[u8; 32]>,
    },
    /// A real-world purpose belongs to this effect.
    ClaimTaken {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
        at: u64,
    },
    /// It no longer does: proof that nothing happened, or it was undone.
    ClaimReleased {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
        at: u64,
    },

    /// A provider's identifier is the receipt of this effect.
    ReceiptKnown {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
    },
    /// A client sent its own key along with a call that asked for this effect.
    ClientKeyUsed {
        #[serde(with = "serde_bytes")]
        effect: [u8; 32],
        /// Digest of tool, arguments and facts: a call of several effects uses one key for all of them.
        #[serde(with = "serde_bytes")]
        call: [u8; 32],
        at: u64,
    },
    /// Nobody will come back to what belongs to it: its effects may be pruned.
    ParentClosed {
        parent: String,
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },

    // Of calls that go on while their callers ask for them later.
    /// A call goes on as a task.
    TaskBegun(Box<TaskBegun>),
    /// It has ended; what its caller is told.
    TaskEnded { ending: TaskEnding, result: Stored, at: u64 },
    /// Its time is over: what was asked and told is dropped.
    TaskDropped { at: u64 },
    /// All the tasks that an owner has now.
    TasksOf { owner: TaskOwner, tasks: Vec<TaskRef>, at: u64 },
    /// Somebody has tasks for the first time.
    TaskOwnerKnown { owner: TaskOwner },

    // Of an effect.
    /// Frozen in a plan.
    Planned(Box<Proposal>),
    /// Other values, before anything was sent or after proof that nothing happened.
    Amended(Box<Proposal>),
    /// The rendered request waits for a person.
    AwaitingApproval(Box<Proposal>),
    /// A person approved the request with this digest.
    Approved {
        actor: String,
        reason: String,
        #[serde(with = "serde_bytes")]
        request_digest: [u8; 32],
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// A person refused it.
    Denied {
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// Bytes may leave from now on.
    Dispatched(Box<Dispatch>),
    /// Part of the raw answer, as it arrived.
    Evidence {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        offset: u64,
        bytes: Stored,
        at: u64,
        /// It may hold the credential that the answer was asked with, or the beginning of it.
        #[serde(default)]
        echoes: bool,
    },
    /// The raw answer is whole: what came after the last `Evidence`, the length and digest of all of it.
    Responded {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        at: u64,
        head_and_tail: Stored,
        total: u64,
        #[serde(with = "serde_bytes")]
        digest: [u8; 32],
        sent_bytes: u64,
        ended: Ended,
        /// The answer gives away the credential it was asked with.
        #[serde(default)]
        echoes: bool,
    },
    /// Not one application byte was handed over.
    NotSent {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        at: u64,
        why: String,
    },
    /// The attempt ended without an answer, or its sender cannot be found.
    Lost {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        at: u64,
        why: String,
        sender_stopped: bool,
    },
    /// The answer was judged.
    Classified {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        at: u64,
        outcome: Outcome,
    },
    /// Judging it failed; the second time the attempt is unknown.
    ClassifyFailed {
        #[serde(with = "serde_bytes")]
        attempt: [u8; 16],
        at: u64,
        why: String,
    },
    /// What a settle lookup found.
    Settled { at: u64, by: String, verdict: SettleVerdict, evidence: Stored },
    /// Its own lookup found the receipt again.
    Confirmed { at: u64, receipt: String },
    /// Something contradicts the row.
    Diverged { at: u64, why: String, evidence: Stored },
    /// The provider took it back later; evidence, not a state.
    FailedLater {
        at: u64,
        why: String,
        evidence: Stored,
        /// The person who says so; none where an answer does.
        #[serde(default)]
        actor: Option<String>,
        #[serde(default)]
        decision: Option<String>,
    },
    /// An issued effect is final.
    Completed { at: u64, receipt: Option<String>, evidence: Stored },
    /// An issued effect can never be completed.
    Stranded { at: u64, why: String },
    /// The undoing operation, itself this effect, removed it.
    Undone {
        #[serde(with = "serde_bytes")]
        by: [u8; 32],
        at: u64,
    },
    /// It shall not happen, if it has not.
    RevokeWished {
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// It must not happen.
    Revoked {
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// A later epoch may do it again, for those named.
    Superseded {
        actor: String,
        reason: String,
        epoch: u32,
        for_whom: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// An operator says what happened.
    Decided {
        actor: String,
        reason: String,
        outcome: Outcome,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// Bytes and history were dropped; this is what is left.
    Pruned(Box<Tombstone>),

    // Of privacy, see `crate::private`.
    /// Any of the events above, with its private parts encrypted.
    Private(Box<Private>),
    /// From here on nobody reads what was encrypted under this key of the object, or an earlier one: it is
    /// destroyed, or is being. In the stream of each effect, and of what they belong to.
    Erased {
        key: KeyName,
        actor: String,
        reason: String,
        at: u64,
        #[serde(default)]
        decision: Option<String>,
    },
    /// Nothing more is encrypted under the key with this number: what is erased is counted after that.
    KeyRetired { generation: u32, at: u64 },
    /// The key with this number is destroyed.
    KeyDestroyed { generation: u32, at: u64 },
}

impl Event {
    /// When it happened, for events that say so.
    pub fn at(&self) -> Option<u64> {
        match self {
            Event::ContractSeen { .. }
            | Event::RecipeBound { .. }
            | Event::OwnerBound { .. }
            | Event::AccountBound { .. }
            | Event::LookupResolved { .. }
            | Event::SequenceTaken { .. }
            | Event::ReceiptKnown { .. }
            | Event::TaskOwnerKnown { .. }
            | Event::Pinned { .. } => None,
            Event::Private(private) => private.event.at(),
            Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
                Some(proposal.at)
            }
            Event::Dispatched(dispatch) => Some(dispatch.at),
            Event::Pruned(tombstone) => Some(tombstone.at),
            Event::TaskBegun(task) => Some(task.at),
            Event::TaskEnded { at, .. }
            | Event::TaskDropped { at }
            | Event::TasksOf { at, .. }
            | Event::LedgerCreated { at, .. }
            | Event::LedgerTrusted { at, .. }
            | Event::LedgerSealed { at, .. }
            | Event::AccountRenamed { at, .. }
            | Event::HostStarted { at, .. }
            | Event::HostFenced { at, .. }
            | Event::PermitGranted { at, .. }
            | Event::PermitReserved { at, .. }
            | Event::PermitReleased { at, .. }
            | Event::PermitRevoked { at, .. }
            | Event::PlanFrozen { at, .. }
            | Event::ClaimTaken { at, .. }
            | Event::ClaimReleased { at, .. }
            | Event::ClientKeyUsed { at, .. }
            | Event::ParentClosed { at, .. }
            | Event::Approved { at, .. }
            | Event::Denied { at, .. }
            | Event::Evidence { at, .. }
            | Event::Responded { at, .. }
            | Event::NotSent { at, .. }
            | Event::Lost { at, .. }
            | Event::Classified { at, .. }
            | Event::ClassifyFailed { at, .. }
            | Event::Settled { at, .. }
            | Event::Confirmed { at, .. }
            | Event::Diverged { at, .. }
            | Event::FailedLater { at, .. }
            | Event::Completed { at, .. }
            | Event::Stranded { at, .. }
            | Event::Undone { at, .. }
            | Event::RevokeWished { at, .. }
            | Event::Revoked { at, .. }
            | Event::Superseded { at, .. }
            | Event::Erased { at, .. }
            | Event::KeyRetired { at, .. }
            | Event::KeyDestroyed { at, .. }
            | Event::Decided { at, .. } => Some(*at),
        }
    }

    /// The id of the decision that it records, for decisions that have one.
    pub fn decision(&self) -> Option<&str> {
        match self {
            Event::AccountRenamed { decision, .. }
            | Event::HostFenced { decision, .. }
            | Event::ParentClosed { decision, .. }
            | Event::Approved { decision, .. }
            | Event::Denied { decision, .. }
            | Event::FailedLater { decision, .. }
            | Event::RevokeWished { decision, .. }
            | Event::Revoked { decision, .. }
            | Event::Superseded { decision, .. }
            | Event::Erased { decision, .. }
            | Event::Decided { decision, .. } => decision.as_deref(),
            Event::Private(private) => private.event.decision(),
            _ => None,
        }
    }

    /// Whether a stream may begin with it: what lies before it can be removed.
    pub fn may_begin(&self) -> bool {
        matches!(self.plain(), Event::Pruned(_) | Event::TaskDropped { .. } | Event::TasksOf { .. })
    }

    /// The event itself, whether or not its private parts are encrypted.
    pub fn plain(&self) -> &Event {
        match self {
            Event::Private(private) => private.event.plain(),
            event => event,
        }
    }

    /// Every place where it holds bytes, in a fixed order.
    pub fn stored_mut(&mut self) -> Vec<&mut Stored> {
        match self {
            Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
                vec![&mut proposal.fields, &mut proposal.request]
            }
            Event::Dispatched(dispatch) => {
                let mut places = vec![&mut dispatch.fields, &mut dispatch.request];
                places.extend(dispatch.lookups.iter_mut().map(|(_, _, bytes)| bytes));
                places
            }
            Event::Evidence { bytes, .. } => vec![bytes],
            Event::Responded { head_and_tail, .. } => vec![head_and_tail],
            Event::Settled { evidence, .. }
            | Event::Diverged { evidence, .. }
            | Event::FailedLater { evidence, .. }
            | Event::Completed { evidence, .. } => vec![evidence],
            Event::PermitGranted { document, .. } | Event::PlanFrozen { document, .. } => {
                vec![document]
            }
            Event::TaskBegun(task) => vec![&mut task.arguments],
            Event::TaskEnded { result, .. } => vec![result],
            Event::Private(private) => private.event.stored_mut(),
            _ => Vec::new(),
        }
    }

    /// The stored name, as JSON and CBOR show it.
    pub fn name(&self) -> String {
        match ciborium::Value::serialized(self.plain()) {
            Ok(ciborium::Value::Map(pairs)) => match pairs.into_iter().next() {
                Some((ciborium::Value::Text(name), _)) => name,
                _ => String::new(),
            },
            Ok(ciborium::Value::Text(name)) => name,
            _ => String::new(),
        }
    }
}
