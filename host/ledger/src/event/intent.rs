//! What is sent, what would be sent, and what is left when history is dropped.

use serde::{Deserialize, Serialize};

use super::Stored;

/// The intent to send, durable before the first byte leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Random name of the attempt.
    #[serde(with = "serde_bytes")]
    pub attempt: [u8; 16],
    /// The host incarnation that sends.
    #[serde(with = "serde_bytes")]
    pub host: [u8; 16],
    /// When, in milliseconds of Unix time.
    pub at: u64,
    /// Rises only after proof that nothing happened.
    pub generation: u32,
    /// Rises only by a recorded decision.
    pub epoch: u32,
    /// Whose effect.
    pub tenant: String,
    /// The provider account.
    pub account: String,
    /// The owner of the action.
    pub owner: String,
    /// The action.
    pub action: String,
    /// The contract's operation.
    pub operation: String,
    /// The tool that asked.
    pub tool: String,
    /// Digest of the component.
    #[serde(with = "serde_bytes")]
    pub component: [u8; 32],
    /// Digest of the contract it is judged by.
    #[serde(with = "serde_bytes")]
    pub contract: [u8; 32],
    /// Digest of the recipe of its key.
    #[serde(with = "serde_bytes")]
    pub recipe: [u8; 32],
    /// What people see.
    pub label: String,
    /// Salt of the fingerprint.
    #[serde(with = "serde_bytes")]
    pub salt: [u8; 16],
    /// The bound fields, each as its own salted hash.
    #[serde(with = "crate::wire::named")]
    pub fingerprint: Vec<(String, [u8; 32])>,
    /// Digest of the generated fields.
    #[serde(with = "serde_bytes")]
    pub generated: [u8; 32],
    /// The resolved fields, opaque here.
    pub fields: Stored,
    /// The rendered request, opaque here.
    pub request: Stored,
    /// Digest of the rendered request.
    #[serde(with = "serde_bytes")]
    pub request_digest: [u8; 32],
    /// What the provider knows the effect by.
    pub downstream_key: String,
    /// Where it is sent.
    pub url: String,
    /// Name and version of the credential.
    #[serde(with = "crate::wire::credential")]
    pub credential: Option<(String, [u8; 8])>,
    /// The lookups that resolved the key: operation, digest of the request, raw answer.
    #[serde(with = "crate::wire::lookups")]
    pub lookups: Vec<(String, [u8; 32], Stored)>,
    /// The first byte may leave for so long after the commit.
    pub send_within_ms: u64,
    /// The identical stored request is sent again under the same downstream key.
    pub resend: bool,
    /// Nothing undoes it.
    pub irreversible: bool,
    /// The provider dedupes on key and body.
    pub provider_dedupes: bool,
    /// Bytes handed over reach the provider itself, no relay.
    pub egress_direct: bool,
    /// What else in the ledger it is tied to.
    #[serde(default)]
    pub ties: Ties,
}

/// What an effect is tied to in the ledger: where it belongs, what it uses up, what it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ties {
    /// What it belongs to, as the orchestrator named it.
    pub parent: Option<String>,
    /// The plan it is part of.
    pub plan: Option<String>,
    /// The permit that covers it, with what is reserved there for its key.
    pub permit: Option<PermitUse>,
    /// Streams of the real-world purposes that belong to it alone.
    #[serde(with = "crate::wire::digests")]
    pub claims: Vec<[u8; 32]>,
    /// The issued effect that it makes final.
    pub completes: Option<serde_bytes::ByteArray<32>>,
    /// The effect that it undoes.
    pub undoes: Option<serde_bytes::ByteArray<32>>,
}

/// What of a permit an effect's key uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitUse {
    /// The permit.
    pub id: String,
    /// The grant it was given under: another permit of the same grant may continue the key.
    pub grant: String,
    /// Streams of its balances, and how much of each belongs to the key.
    pub reserved: Vec<(serde_bytes::ByteArray<32>, u64)>,
}

/// What would be sent: frozen in a plan, or waiting for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// When.
    pub at: u64,
    /// The plan it is frozen in.
    #[serde(default)]
    pub plan: Option<String>,
    /// Rises only by a recorded decision.
    pub epoch: u32,
    /// Whose effect.
    pub tenant: String,
    /// The provider account.
    pub account: String,
    /// The owner of the action.
    pub owner: String,
    /// The action.
    pub action: String,
    /// The contract's operation.
    pub operation: String,
    /// The tool that asked.
    pub tool: String,
    /// Digest of the contract it was rendered under.
    #[serde(with = "serde_bytes")]
    pub contract: [u8; 32],
    /// What people see.
    pub label: String,
    /// Salt of the fingerprint.
    #[serde(with = "serde_bytes")]
    pub salt: [u8; 16],
    /// The bound fields, each as its own salted hash.
    #[serde(with = "crate::wire::named")]
    pub fingerprint: Vec<(String, [u8; 32])>,
    /// Digest of the generated fields.
    #[serde(with = "serde_bytes")]
    pub generated: [u8; 32],
    /// The resolved fields, opaque here.
    pub fields: Stored,
    /// The rendered request, opaque here.
    pub request: Stored,
    /// Digest of the rendered request: what an approval binds to.
    #[serde(with = "serde_bytes")]
    pub request_digest: [u8; 32],
    /// What else in the ledger it would be tied to.
    #[serde(default)]
    pub ties: Ties,
}

/// What is left of a pruned effect: enough to answer and to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// When it was pruned.
    pub at: u64,
    /// Its state then.
    pub state: crate::StateTag,
    /// Its generation.
    pub generation: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Whose effect it was.
    #[serde(default)]
    pub tenant: String,
    /// The provider account.
    #[serde(default)]
    pub account: String,
    /// The owner of the action.
    #[serde(default)]
    pub owner: String,
    /// The action.
    #[serde(default)]
    pub action: String,
    /// The tool that asked.
    pub tool: String,
    /// The operation.
    pub operation: String,
    /// What people see.
    pub label: String,
    /// Salt of the fingerprint.
    #[serde(with = "serde_bytes")]
    pub salt: [u8; 16],
    /// The bound fields, each as its own salted hash.
    #[serde(with = "crate::wire::named")]
    pub fingerprint: Vec<(String, [u8; 32])>,
    /// Digest of the generated fields.
    #[serde(with = "serde_bytes")]
    pub generated: [u8; 32],
    /// The receipt.
    pub receipt: Option<String>,
    /// Why nothing happened, or why it was revoked.
    pub reason: Option<String>,
    /// Whether its lookup confirmed it.
    pub confirmed: bool,
    /// When its state was reached.
    pub settled_at: u64,
    /// The later epoch, if it was superseded: epoch, for whom, the state before.
    #[serde(default)]
    pub superseded_by: Option<(u32, String, crate::StateTag)>,
    /// The effect that undid it.
    #[serde(default, with = "serde_bytes")]
    pub undone_by: Option<[u8; 32]>,
    /// Receipts that contradicted it.
    #[serde(default)]
    pub other_receipts: Vec<String>,
    /// Something contradicted it once.
    #[serde(default)]
    pub diverged: bool,
    /// What else in the ledger it is tied to.
    #[serde(default)]
    pub ties: Ties,
    /// What was reported long after success.
    #[serde(default)]
    pub failed_later: Option<String>,
    /// The ids of the decisions on it.
    #[serde(default)]
    pub decisions: Vec<String>,
    /// How often its text was erased.
    #[serde(default)]
    pub erasures: u32,
}
