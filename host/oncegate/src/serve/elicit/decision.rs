//! A person's answer as the ledger's event: taken once, on the row that was shown.

use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Effects, Event, LedgerError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::answer::Verdict;
use crate::home::now_ms;
use crate::print::hex;

/// Bytes of a digest that name a decision: enough to tell all decisions of a ledger apart.
const ID_BYTES: usize = 12;
/// What is on record as the reason: the client's word, and no reason of a person.
const REASON: &str = "the client's word for what its person answered";

/// The row that a person was shown. A decision on it is one at this version, and every decision makes
/// another version: so it can be taken once, in whatever process and however often it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenRow {
    pub(super) key: [u8; 32],
    pub(super) version: u64,
    pub(super) epoch: u32,
    pub(super) request_digest: [u8; 32],
}

impl SeenRow {
    /// A row that waits for an approval.
    pub(super) fn of(key: [u8; 32], row: &Effect) -> Option<Self> {
        let waits = row.state == StateTag::AwaitingApproval && !row.frozen;
        let proposal = row.proposal.as_deref().filter(|_| waits)?;
        let (version, epoch, request_digest) = (row.version, row.epoch, proposal.request_digest);
        Some(Self { key, version, epoch, request_digest })
    }

    /// Whether it is still that row.
    pub(super) fn is(&self, row: &Effect) -> bool {
        Self::of(self.key, row).is_some_and(|now| now == *self)
    }
}

/// The name of the decision that an answer to one asking is.
pub(super) fn id(seen: &SeenRow, asking: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"elicitation");
    hash.update(seen.key);
    hash.update(seen.version.to_be_bytes());
    hash.update(asking);
    let digest: [u8; 32] = hash.finalize().into();
    hex(digest.get(..ID_BYTES).unwrap_or(&digest))
}

/// An answer.
pub(super) struct Decision {
    pub(super) actor: String,
    pub(super) verdict: Verdict,
    pub(super) id: String,
}

impl Decision {
    /// Records it; whether the call goes on. It does not where the row is another than the one shown and
    /// still needs somebody's approval: this answer is for another row.
    pub(super) async fn record(&self, effects: &Effects, seen: &SeenRow) -> bool {
        match self.record_on(effects, seen).await {
            Ok(goes_on) => goes_on,
            Err(error) => {
                tracing::error!(%error, "an answer through a client was not recorded");
                false
            }
        }
    }

    async fn record_on(&self, effects: &Effects, seen: &SeenRow) -> Result<bool, LedgerError> {
        let Some(row) = effects.get(seen.key).await? else { return Ok(false) };
        if !seen.is(&row) {
            return Ok(self.goes_on(&row));
        }
        let event = self.event(seen);
        match effects.advance(seen.key, Some(&row), event, Vec::new()).await {
            Ok(_) => Ok(true),
            Err(error) => {
                tracing::info!(%error, "an answer through a client met another");
                // Another was first, or nobody knows whether it was stored: the row says.
                let row = effects.get(seen.key).await?;
                Ok(row.is_some_and(|row| self.goes_on(&row)))
            }
        }
    }

    /// Whether the row, which is not as it was shown, needs nothing of this answer.
    fn goes_on(&self, row: &Effect) -> bool {
        let approved = row.state == StateTag::AwaitingApproval && row.approved.is_some();
        match row.state {
            // What was answered with "no" is not sent on somebody else's word.
            StateTag::AwaitingApproval => approved && self.verdict == Verdict::Approve,
            StateTag::Planned | StateTag::NoEffect => false,
            // It was sent, or refused: the stored answer needs no approval.
            _ => true,
        }
    }

    fn event(&self, seen: &SeenRow) -> Event {
        let (actor, reason, decision, at) = (self.actor.clone(), REASON.to_owned(), Some(self.id.clone()), now_ms());
        match self.verdict {
            Verdict::Approve => Event::Approved { actor, reason, request_digest: seen.request_digest, at, decision },
            Verdict::Deny => Event::Denied { actor, reason, at, decision },
        }
    }
}
