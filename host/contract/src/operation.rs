//! One declared interaction with a provider.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::condition::Conditions;
use crate::database::Query;
use crate::field::Field;
use crate::place::{PathTemplate, Place};
use crate::pointer::Pointer;

/// Whether something can happen outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectClass {
    /// Nothing can.
    None,
    /// Yes, each at most once for its key.
    Keyed,
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `application/json`.
    Json,
    /// `multipart/form-data`.
    Multipart,
    /// One field is the body.
    Bytes,
    /// There is none.
    None,
}

impl BodyKind {
    /// The word in contracts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Json => "json",
            Self::Multipart => "multipart",
            Self::Bytes => "bytes",
            Self::None => "none",
        }
    }
}

/// Whether the provider itself drops repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dedupe {
    /// No.
    None,
    /// By the key alone: another body under the same key is not noticed.
    Key,
    /// By the key, and another body under it is refused.
    KeyAndBody,
}

/// Within what a provider compares its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupeScope {
    /// One credential.
    Credential,
    /// The whole account.
    Account,
}

/// What the contract states about the provider's own idempotency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderTerms {
    /// The kind.
    pub dedupe: Dedupe,
    /// Where the downstream key is written.
    pub at: Option<Place>,
    /// How long the provider remembers.
    pub window: Option<Duration>,
    /// Within what it compares.
    pub scope: DedupeScope,
}

/// How the host finds out whether an effect exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The lookup that is run.
    pub operation: String,
    /// Its field, and this operation's field (or `reference`) that fills it.
    pub with: BTreeMap<String, String>,
    /// The array of candidates; none: the answer is the one candidate.
    pub each: Option<Pointer>,
    /// The receipt within a candidate.
    pub receipt: Pointer,
    /// This operation's field, and where a candidate must show the same value.
    pub must_equal: BTreeMap<String, Pointer>,
    /// Key parts, and where a candidate shows them, when their places do not tell.
    pub matching: BTreeMap<String, Pointer>,
    /// Where a candidate shows the reference.
    pub reference: Option<Pointer>,
    /// How long the provider's index may lag.
    pub absent_after: Option<Duration>,
}

/// Within what a sequence counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SequenceScope {
    /// One trigger.
    Trigger,
    /// One run.
    Run,
}

impl SequenceScope {
    /// The name of the fact that identifies the scope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Run => "run",
        }
    }
}

/// What an undoing operation undoes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revokes {
    /// The operation whose effect is undone.
    pub operation: String,
    /// Where its receipt is written.
    pub at: Place,
}

/// An earlier way of this operation to make its key, still answered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerRecipe {
    /// The action then.
    pub action: String,
    /// The key parts then, in order.
    pub fields: Vec<Field>,
    /// The sequence scope then.
    pub repeat: Option<SequenceScope>,
}

/// One declared interaction with a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Whether it causes an effect.
    pub effect: EffectClass,
    /// What it does, in one word; always there for a keyed operation.
    pub action: Option<String>,
    /// The HTTP method, or the word for what a database is asked, in upper case.
    pub method: String,
    /// The endpoint.
    pub endpoint: String,
    /// The path below the endpoint's URL.
    pub path: PathTemplate,
    /// What a database is asked; none for HTTP.
    pub query: Option<Query>,
    /// How the body is written.
    pub body: BodyKind,
    /// Everything that may be sent, in the order in which it is written.
    pub fields: Vec<Field>,
    /// Where the host writes the downstream key, so that settling finds exactly this effect.
    pub reference: Option<Place>,
    /// Where a 2xx answer has the receipt.
    pub receipt: Option<Pointer>,
    /// A lookup's answer counts as found.
    pub found_when: Conditions,
    /// The effect has happened; empty: 2xx, parses, receipt present.
    pub done_when: Conditions,
    /// It exists and is not final.
    pub accepted_when: Conditions,
    /// Proof that nothing happened.
    pub no_effect_when: Conditions,
    /// The provider swallowed a repeat.
    pub duplicate_when: Conditions,
    /// Statuses that are the whole proof, for providers without a body.
    pub status_is_proof: Vec<u16>,
    /// Answer headers shown to the guest, in lower case.
    pub headers: Vec<String>,
    /// The provider's own idempotency.
    pub provider: ProviderTerms,
    /// How to find out.
    pub settle: Option<Settle>,
    /// The operation that undoes this one; none: irreversible.
    pub undone_by: Option<String>,
    /// What this operation undoes.
    pub revokes: Option<Revokes>,
    /// Repeats legitimately, by the orchestrator's ordinal.
    pub repeat: Option<SequenceScope>,
    /// The operation whose effect this one makes final.
    pub completes: Option<String>,
    /// How long that is possible, from the first dispatch of that effect.
    pub complete_within: Option<Duration>,
    /// The operation that makes an effect of this one final: its `completes` names this one.
    pub completed_by: Option<String>,
    /// Run the settle lookup before the first dispatch.
    pub ensure: bool,
    /// Earlier recipes of the key.
    pub was: Vec<FormerRecipe>,
}

impl Operation {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Whether nothing in the contract can undo the effect.
    pub fn irreversible(&self) -> bool {
        self.undone_by.is_none()
    }

    /// Whether the downstream key is written into the request.
    pub(crate) fn needs_downstream_key(&self) -> bool {
        self.effect == EffectClass::Keyed && (self.reference.is_some() || self.provider.at.is_some())
    }
}
