//! What else one commit must say: a row that changes changes what it is tied to.
//!
//! [`of`] is pure. [`crate::Effects::advance`] adds what it says to the same append, so that a receipt
//! is never without its index, a completed effect never open beside the one that completed it, and a
//! permit never charged for what is proven not to have happened.

use crate::state::{Effect, StateTag};
use crate::{Append, Event, Expect, StreamId, StreamKind, Ties};

/// Receipts that a host wrote itself, where the provider's status is all the proof there is.
const BY_STATUS: &str = "status:";

/// One consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// This append goes into the same batch.
    Also(Append),
    /// The issued effect with this key is final.
    Completes {
        /// Its key.
        target: [u8; 32],
        /// The receipt of the completing effect, for a target that has none.
        receipt: Option<String>,
    },
    /// The effect with this key was undone.
    Undoes {
        /// Its key.
        target: [u8; 32],
    },
}

/// What follows from the step of the effect `key` from `before` to `after` at the time `at`.
pub fn of(key: [u8; 32], before: Option<&Effect>, after: &Effect, at: u64) -> Vec<Consequence> {
    let mut found = Vec::new();
    if let Some(id) = new_receipt(before, after) {
        let event = Event::ReceiptKnown { effect: key };
        found.push(Consequence::Also(Append::new(id, Expect::Any, event)));
    }
    let Some(ties) = after.ties() else { return found };
    let was = |state| before.is_some_and(|before| before.state == state);
    if after.state == StateTag::Done && !was(StateTag::Done) {
        let targets = ties
            .completes
            .map(|target| Consequence::Completes { target: target.into_array(), receipt: after.receipt.clone() });
        found.extend(targets);
        found.extend(ties.undoes.map(|target| Consequence::Undoes { target: target.into_array() }));
    }
    found.extend(released(key, before, after, ties, at).into_iter().map(Consequence::Also));
    found
}

/// Whether a receipt names one thing, so that its owner is kept.
pub fn is_indexed(receipt: &str) -> bool {
    !receipt.starts_with(BY_STATUS)
}

fn new_receipt(before: Option<&Effect>, after: &Effect) -> Option<StreamId> {
    let receipt = after.receipt.as_deref().filter(|receipt| is_indexed(receipt))?;
    let known = before.and_then(|before| before.receipt.as_deref());
    (known != Some(receipt)).then(|| StreamId::receipt(after.account(), receipt))
}

/// What belonged to the key and does not any more.
fn released(key: [u8; 32], before: Option<&Effect>, after: &Effect, ties: &Ties, at: u64) -> Vec<Append> {
    let mut appends = Vec::new();
    let Some(before) = before else { return appends };
    if uses_permit(before) && !uses_permit(after) {
        for (stream, amount) in ties.permit.iter().flat_map(|used| &used.reserved) {
            let id = StreamId { kind: StreamKind::Permit, id: stream.into_array() };
            let event = Event::PermitReleased { effect: key, amount: *amount, at };
            appends.push(Append::new(id, Expect::Any, event));
        }
    }
    if holds_claims(before) && !holds_claims(after) {
        for stream in &ties.claims {
            let id = StreamId { kind: StreamKind::Claim, id: *stream };
            appends.push(Append::new(id, Expect::Any, Event::ClaimReleased { effect: key, at }));
        }
    }
    appends
}

/// Sent, and not proven to have had no effect.
fn uses_permit(effect: &Effect) -> bool {
    let nothing = [StateTag::Planned, StateTag::AwaitingApproval, StateTag::NoEffect, StateTag::Revoked];
    let sent = !effect.attempts.is_empty() || effect.tombstone.is_some();
    sent && !nothing.contains(&effect.state)
}

fn holds_claims(effect: &Effect) -> bool {
    uses_permit(effect) && !matches!(effect.state, StateTag::Undone | StateTag::Superseded)
}

/// The effect that a claim belongs to, by the claim's records.
pub fn holder<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<[u8; 32]> {
    events.into_iter().fold(None, |holder, event| match event {
        Event::ClaimTaken { effect, .. } => Some(*effect),
        Event::ClaimReleased { effect, .. } if holder == Some(*effect) => None,
        _ => holder,
    })
}
