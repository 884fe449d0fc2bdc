//! The state function: which event is legal next, and what the row is after it.
//!
//! Everything here is pure. A row is `no-effect` by construction only when every attempt has proof:
//! the state of an unsettled row is derived from its attempts, never stored beside them.

mod attempt;
mod decide;
mod facts;
mod next;
mod resend;
mod verbs;

use serde::{Deserialize, Serialize};

pub use attempt::Attempt;
pub use decide::{Answer, Sender, answer};
pub use next::{fold, next};
pub use resend::{ResendTerms, may_resend};

use crate::{Dispatch, Proposal, Ties, Tombstone};

/// The state of an effect. The codes are part of the stored format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum StateTag {
    /// Frozen in a plan, nothing sent.
    Planned = 1,
    /// The rendered request is stored; a person decides.
    AwaitingApproval = 2,
    /// Intent durable; bytes may have left.
    Dispatched = 3,
    /// Raw answer durable, not yet classified.
    Responded = 4,
    /// Receipt known.
    Done = 5,
    /// Proof for every attempt that nothing happened.
    NoEffect = 6,
    /// Exists, not final.
    Issued = 7,
    /// Exists and can never be completed.
    Stranded = 8,
    /// Nobody knows.
    Unknown = 9,
    /// Removed through the contract's own undoing operation.
    Undone = 10,
    /// Must not happen at this epoch.
    Revoked = 11,
    /// Replaced by a later epoch.
    Superseded = 12,
}

impl StateTag {
    /// Every state, in the order of the codes.
    pub const ALL: [StateTag; 12] = [
        StateTag::Planned,
        StateTag::AwaitingApproval,
        StateTag::Dispatched,
        StateTag::Responded,
        StateTag::Done,
        StateTag::NoEffect,
        StateTag::Issued,
        StateTag::Stranded,
        StateTag::Unknown,
        StateTag::Undone,
        StateTag::Revoked,
        StateTag::Superseded,
    ];

    /// The stored code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state with this stored code.
    pub fn from_code(code: u8) -> Option<StateTag> {
        StateTag::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The name that people read and type.
    pub fn as_str(self) -> &'static str {
        match self {
            StateTag::Planned => "planned",
            StateTag::AwaitingApproval => "awaiting-approval",
            StateTag::Dispatched => "dispatched",
            StateTag::Responded => "responded",
            StateTag::Done => "done",
            StateTag::NoEffect => "no-effect",
            StateTag::Issued => "issued",
            StateTag::Stranded => "stranded",
            StateTag::Unknown => "unknown",
            StateTag::Undone => "undone",
            StateTag::Revoked => "revoked",
            StateTag::Superseded => "superseded",
        }
    }
}

impl std::fmt::Display for StateTag {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.as_str())
    }
}

impl std::str::FromStr for StateTag {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        StateTag::ALL
            .into_iter()
            .find(|state| state.as_str() == name)
            .ok_or_else(|| format!("{name:?} is not a state of an effect; they are {}", names()))
    }
}

fn names() -> String {
    StateTag::ALL.map(StateTag::as_str).join(", ")
}

/// A decision to do the effect again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supersession {
    /// The later epoch.
    pub epoch: u32,
    /// Who may use it.
    pub for_whom: String,
    /// The state before, which other callers go on hearing.
    pub before: StateTag,
}

/// One effect, folded from its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Its state.
    pub state: StateTag,
    /// The version of its stream.
    pub version: u64,
    /// Rises only after proof that nothing happened.
    pub generation: u32,
    /// Rises only by a recorded decision.
    pub epoch: u32,
    /// Every attempt, in order, of every generation.
    pub attempts: Vec<Attempt>,
    /// The provider's identifier for the effect. Set once, never rewritten.
    pub receipt: Option<String>,
    /// Receipts that contradict the row, or of candidates that could not be told apart.
    pub other_receipts: Vec<String>,
    /// The provider's reason why nothing happened, or a person's.
    pub reason: Option<String>,
    /// The receipt was found by a lookup as well.
    pub confirmed: bool,
    /// Something contradicted it, now or once.
    pub diverged: bool,
    /// Only an operator goes on.
    pub frozen: bool,
    /// It shall not happen if it has not: no bytes not yet sent, no resends.
    pub revoke_wished: bool,
    /// The decision to do it again.
    pub superseded_by: Option<Supersession>,
    /// The effect that undid it.
    pub undone_by: Option<[u8; 32]>,
    /// What the provider reported long after success.
    pub failed_later: Option<String>,
    /// What would be sent: planned, or waiting for a person.
    pub proposal: Option<Box<Proposal>>,
    /// The digest of the request that a person approved.
    pub approved: Option<[u8; 32]>,
    /// Who approved the request that waits, or the one that was sent last.
    pub approved_by: Vec<String>,
    /// The latest dispatch.
    pub dispatch: Option<Box<Dispatch>>,
    /// When the first attempt of this generation was dispatched: the dedupe window runs from here.
    pub first_dispatch_at_of_generation: u64,
    /// The highest stamp of its events.
    pub updated_at: u64,
    /// When its state last changed.
    pub state_since: u64,
    /// Why nobody knows.
    pub unknown_why: Option<String>,
    /// What is left after pruning.
    pub tombstone: Option<Box<Tombstone>>,
    /// The ids of the decisions on it, so that the same one is not taken twice.
    pub decisions: Vec<String>,
    /// How often its text was erased.
    pub erasures: u32,
}

impl Effect {
    /// What the bound fields of a call are compared with: salt, and each field's salted hash.
    #[expect(clippy::type_complexity, reason = "the salt and the named hashes, as they are stored")]
    pub fn fingerprint(&self) -> Option<(&[u8; 16], &[(String, [u8; 32])])> {
        if let Some(waiting) = self.waiting() {
            return Some((&waiting.salt, waiting.fingerprint.as_slice()));
        }
        if let Some(dispatch) = &self.dispatch {
            return Some((&dispatch.salt, &dispatch.fingerprint));
        }
        if let Some(tombstone) = &self.tombstone {
            return Some((&tombstone.salt, &tombstone.fingerprint));
        }
        self.proposal.as_ref().map(|proposal| (&proposal.salt, proposal.fingerprint.as_slice()))
    }

    /// What would be sent next, of a row that is planned or waits for a person: an earlier dispatch
    /// says nothing of that.
    pub fn waiting(&self) -> Option<&Proposal> {
        let waits = matches!(self.state, StateTag::Planned | StateTag::AwaitingApproval);
        self.proposal.as_deref().filter(|_| waits)
    }

    /// Digest of the generated fields really sent, or to be sent; none where it cannot be read any more.
    pub fn generated(&self) -> Option<[u8; 32]> {
        self.generated_as_stored().filter(|digest| *digest != [0; 32])
    }

    fn generated_as_stored(&self) -> Option<[u8; 32]> {
        if let Some(waiting) = self.waiting() {
            return Some(waiting.generated);
        }
        let dispatch = self.dispatch.as_ref().map(|dispatch| dispatch.generated);
        let tombstone = self.tombstone.as_ref().map(|tombstone| tombstone.generated);
        dispatch.or(tombstone).or(self.proposal.as_ref().map(|proposal| proposal.generated))
    }

    /// What people see.
    pub fn label(&self) -> &str {
        if let Some(waiting) = self.waiting() {
            return &waiting.label;
        }
        let dispatch = self.dispatch.as_ref().map(|dispatch| dispatch.label.as_str());
        let tombstone = self.tombstone.as_ref().map(|tombstone| tombstone.label.as_str());
        let proposal = self.proposal.as_ref().map(|proposal| proposal.label.as_str());
        dispatch.or(tombstone).or(proposal).unwrap_or_default()
    }

    /// What else in the ledger it is tied to.
    pub fn ties(&self) -> Option<&Ties> {
        if let Some(waiting) = self.waiting() {
            return Some(&waiting.ties);
        }
        let dispatch = self.dispatch.as_ref().map(|dispatch| &dispatch.ties);
        let tombstone = self.tombstone.as_ref().map(|tombstone| &tombstone.ties);
        dispatch.or(self.proposal.as_ref().map(|proposal| &proposal.ties)).or(tombstone)
    }

    /// The provider account.
    pub fn account(&self) -> &str {
        let dispatch = self.dispatch.as_ref().map(|dispatch| dispatch.account.as_str());
        let tombstone = self.tombstone.as_ref().map(|tombstone| tombstone.account.as_str());
        let proposal = self.proposal.as_ref().map(|proposal| proposal.account.as_str());
        dispatch.or(proposal).or(tombstone).unwrap_or_default()
    }

    /// The state that callers hear: of a superseded row, to whom the later epoch is not, the one before.
    pub fn heard_state(&self) -> StateTag {
        self.superseded_by.as_ref().map_or(self.state, |supersession| supersession.before)
    }

    /// The contract that it is judged by, and the operation there; none once the row is pruned.
    pub fn judged_by(&self) -> Option<([u8; 32], &str)> {
        let dispatch = self.dispatch.as_ref().map(|dispatch| (dispatch.contract, dispatch.operation.as_str()));
        dispatch.or(self.proposal.as_ref().map(|proposal| (proposal.contract, proposal.operation.as_str())))
    }

    /// The attempt with this name.
    pub fn attempt(&self, id: [u8; 16]) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.id == id)
    }

    /// The latest attempt that has neither answered nor ended: the one whose sender matters.
    pub fn open_attempt(&self) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|attempt| attempt.is_open())
    }

    /// The latest attempt whose answer is stored and not judged.
    pub fn unclassified_attempt(&self) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|attempt| attempt.awaits_classification())
    }

    /// Whether the bound fields of another call must equal this row's: from a dispatch until proof
    /// that nothing happened.
    pub fn binds(&self) -> bool {
        let state = match &self.superseded_by {
            Some(supersession) => supersession.before,
            None => self.state,
        };
        !matches!(state, StateTag::Planned | StateTag::AwaitingApproval | StateTag::NoEffect | StateTag::Revoked)
    }

    /// The generation of the next fresh dispatch.
    pub fn next_generation(&self) -> u32 {
        if self.attempts.is_empty() && self.tombstone.is_none() {
            self.generation
        } else {
            self.generation.saturating_add(1)
        }
    }

    /// A copy without stored bytes, for readers that keep many.
    pub fn without_bytes(mut self) -> Effect {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.fields = crate::Stored::empty();
            dispatch.request = crate::Stored::empty();
            dispatch.lookups.clear();
        }
        if let Some(proposal) = &mut self.proposal {
            proposal.fields = crate::Stored::empty();
            proposal.request = crate::Stored::empty();
        }
        self
    }

    /// Tenant, account, owner, action, tool and operation, as they were last sent or proposed.
    pub fn names(&self) -> Option<[&str; 6]> {
        let dispatch = self
            .dispatch
            .as_deref()
            .map(|d| [&d.tenant, &d.account, &d.owner, &d.action, &d.tool, &d.operation].map(String::as_str));
        let proposal = self
            .proposal
            .as_deref()
            .map(|p| [&p.tenant, &p.account, &p.owner, &p.action, &p.tool, &p.operation].map(String::as_str));
        let tombstone = self
            .tombstone
            .as_deref()
            .map(|t| [&t.tenant, &t.account, &t.owner, &t.action, &t.tool, &t.operation].map(String::as_str));
        dispatch.or(proposal).or(tombstone)
    }

    /// What must be kept when the history is dropped.
    ///
    /// # Errors
    /// States that may still change, and frozen rows, are not pruned.
    pub fn to_tombstone(&self, at: u64) -> Result<Tombstone, Illegal> {
        verbs::may_prune(self)?;
        let (salt, fingerprint) =
            self.fingerprint().ok_or(Illegal::new("pruned", self.state, "it has no fingerprint"))?;
        let named = self.names().unwrap_or_default().map(str::to_owned);
        let [tenant, account, owner, action, tool, operation] = named;
        Ok(Tombstone {
            at,
            state: self.state,
            generation: self.generation,
            epoch: self.epoch,
            tenant,
            account,
            owner,
            action,
            tool,
            operation,
            label: self.label().to_owned(),
            salt: *salt,
            fingerprint: fingerprint.to_vec(),
            generated: self.generated().unwrap_or_default(),
            receipt: self.receipt.clone(),
            reason: self.reason.clone(),
            confirmed: self.confirmed,
            settled_at: self.state_since,
            superseded_by: self.superseded_by.as_ref().map(|s| (s.epoch, s.for_whom.clone(), s.before)),
            undone_by: self.undone_by,
            other_receipts: self.other_receipts.clone(),
            diverged: self.diverged,
            ties: self.ties().cloned().unwrap_or_default(),
            failed_later: self.failed_later.clone(),
            decisions: self.decisions.clone(),
            erasures: self.erasures,
        })
    }
}

/// An event that must not happen to a row in its state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible for an effect that is {state}: {why}")]
pub struct Illegal {
    /// The event.
    pub event: String,
    /// The row's state, or `absent`.
    pub state: String,
    /// Why not.
    pub why: String,
}

impl Illegal {
    fn new(event: &str, state: StateTag, why: &str) -> Illegal {
        Illegal { event: event.to_owned(), state: state.as_str().to_owned(), why: why.to_owned() }
    }
}
