//! What a sender stored of an answer before it stopped.

use oncegate_ledger::state::Effect;
use oncegate_ledger::{EffectsError, Ended, Event};
use sha2::{Digest, Sha256};

use super::{AttemptError, is_lost};
use crate::host::{Book, Host};

/// The evidence of an attempt whose sender is known to have stopped, as the answer that it is: cut
/// off, and all there will ever be. None when nothing came.
pub(crate) async fn as_answer(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    attempt: [u8; 16],
) -> Result<Option<Event>, AttemptError> {
    let raw = match book.effects.raw_answer(key, attempt).await {
        Ok(raw) => raw,
        // Parts that do not fit together are no answer; the row goes on as lost.
        Err(error) if is_lost(&error) => {
            tracing::error!(%error, label = row.label(), "the evidence of an attempt cannot be read");
            return Ok(None);
        }
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    if raw.is_empty() {
        return Ok(None);
    }
    Ok(Some(Event::Responded {
        attempt,
        at: (host.now)(),
        head_and_tail: Vec::new().into(),
        total: raw.len() as u64,
        digest: Sha256::digest(&raw).into(),
        // Something was sent, or nothing would have come back; how much, only the sender knew.
        sent_bytes: 1,
        ended: Ended::Failed,
        echoes: echoes(host, row, &raw).await,
    }))
}

/// Whether the answer gives its credential away. Where the credential cannot be read any more it is
/// taken for one that does: it is then given to nobody.
async fn echoes(host: &Host, row: &Effect, raw: &[u8]) -> bool {
    let dispatch = row.dispatch.as_deref();
    if dispatch.is_none_or(|dispatch| dispatch.credential.is_none()) {
        return false;
    }
    host.secret_of(dispatch).await.is_none_or(|secret| secret.is_in_answer(raw))
}
