//! Answers that were stored and not judged by those who have stopped since.
//!
//! The process that owns a ledger tells what an answer came to before that is stored (`attempt/own.rs`). If it ended
//! in between, an effect was told done whose receipt is not on record yet. Before anybody gives a receipt to an effect,
//! he therefore judges what was left: whose receipt it is must not depend on who looks first.

use oncegate_ledger::state::{Sender, StateTag};
use oncegate_ledger::{EffectsError, Role};

use crate::attempt::{self, AttemptError};
use crate::host::{Book, Host};

/// Rows looked at in one page.
const PAGE: usize = 256;

/// Judges all that was left by senders that have stopped, but this effect. The owner of a ledger does it once: while
/// it is that, nobody else tells before it is stored.
pub(crate) async fn judge_leftovers(host: &Host, book: &Book, but: [u8; 32]) -> Result<(), AttemptError> {
    if host.has_no_leftovers() {
        return Ok(());
    }
    let ledger = &book.effects.ledger;
    let owner = ledger.identity().role == Role::Owner;
    let mut after = None;
    loop {
        let page = ledger.list(StateTag::Responded, after, PAGE).await.map_err(EffectsError::from)?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for left in page {
            if left.id != but {
                judge(host, book, left.id).await;
            }
        }
    }
    if owner {
        host.judged_leftovers();
    }
    Ok(())
}

/// One that cannot be judged is as unknown as before, and stops nobody else.
async fn judge(host: &Host, book: &Book, key: [u8; 32]) {
    let Ok(Some(row)) = book.effects.get(key).await else { return };
    let left = row.unclassified_attempt().is_some_and(|one| host.sender_of(book, one) == Sender::Stopped);
    if left && let Err(error) = attempt::classify_alone(host, book, key, row, None).await {
        tracing::warn!(%error, "an answer that was left unjudged");
    }
}
