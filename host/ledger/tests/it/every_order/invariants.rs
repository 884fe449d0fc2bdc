//! What must hold of every step, by name.

use oncegate_ledger::{
    Answer, Effect, Event, Expect, Outcome, Sender, SettleVerdict, StateTag, StreamId, answer, effects, may_resend,
};

use super::World;
use crate::states::generous;

/// One event on one row.
pub(super) struct Step<'a> {
    pub(super) before: Option<&'a World>,
    pub(super) event: &'a Event,
    pub(super) after: &'a World,
}

impl Step<'_> {
    pub(super) fn row_before(&self) -> Option<&Effect> {
        self.before.map(|world| &world.row)
    }

    fn dispatch(&self) -> Option<&oncegate_ledger::Dispatch> {
        match self.event {
            Event::Dispatched(dispatch) => Some(dispatch),
            _ => None,
        }
    }
}

/// Its name, and whether a step keeps it.
pub(super) type Invariant = (&'static str, fn(&Step<'_>) -> bool);

pub(super) const INVARIANTS: [Invariant; 19] = [
    ("at most one live attempt per key", one_live_attempt),
    ("a new generation begins only when every sender before it has stopped", senders_stopped),
    ("nothing leaves unknown without evidence or a decision", unknown_is_left_by_evidence),
    ("a receipt is immutable", receipts_are_immutable),
    ("no receipt is lost", no_receipt_is_lost),
    ("no byte after a revocation of this epoch", no_byte_after_revocation),
    ("a revocation is sticky", revocation_is_sticky),
    ("the downstream key never changes within a generation", one_key_per_generation),
    ("a generation rises only by proof for every attempt", generation_needs_proof),
    ("raw bytes exist for every answered attempt", answers_have_raw_bytes),
    ("each transition appends exactly one event", one_event_each),
    ("an epoch is another key: it never changes", epoch_is_fixed),
    ("no attempt is forgotten but by retention", attempts_stay),
    ("no-effect has a proof for each attempt", no_effect_is_proven),
    ("done has a receipt", done_has_a_receipt),
    ("done and undone are final but for an undoing or a decision", final_states),
    ("only an operator thaws", only_an_operator_thaws),
    ("a dispatch is what the answer or the resend rule permits", dispatches_are_permitted),
    ("an answer permits a dispatch only where nothing happened", permissions_are_earned),
];

fn one_live_attempt(step: &Step<'_>) -> bool {
    step.after.row.attempts.iter().filter(|attempt| attempt.is_open()).count() <= 1
}

fn senders_stopped(step: &Step<'_>) -> bool {
    let fresh = step.dispatch().is_some_and(|dispatch| !dispatch.resend);
    !fresh || step.row_before().is_none_or(|before| before.attempts.iter().all(|attempt| attempt.stopped))
}

fn unknown_is_left_by_evidence(step: &Step<'_>) -> bool {
    if step.row_before().is_none_or(|before| before.state != StateTag::Unknown)
        || step.after.row.state == StateTag::Unknown
    {
        return true;
    }
    match step.event {
        // Evidence: the answer came after all, the sender counted no byte, a lookup found out.
        Event::Responded { .. } | Event::Classified { .. } | Event::NotSent { .. } => true,
        Event::Settled { verdict, .. } => {
            matches!(verdict, SettleVerdict::One { .. } | SettleVerdict::Absent { .. })
        }
        // The provider's own dedupe answers.
        Event::Dispatched(dispatch) => dispatch.resend && dispatch.provider_dedupes,
        // A decision.
        Event::Decided { .. } | Event::Superseded { .. } => true,
        _ => false,
    }
}

fn receipts_are_immutable(step: &Step<'_>) -> bool {
    step.before.is_none_or(|before| before.receipt.is_none() || before.receipt == step.after.row.receipt)
}

fn receipts_of(event: &Event) -> Vec<&str> {
    match event {
        Event::Classified { outcome: Outcome::Done { receipt }, .. }
        | Event::Settled { verdict: SettleVerdict::One { receipt, .. }, .. }
        | Event::Confirmed { receipt, .. }
        | Event::Completed { receipt: Some(receipt), .. }
        | Event::Decided { outcome: Outcome::Done { receipt }, .. } => vec![receipt],
        Event::Classified { outcome: Outcome::Issued { receipt }, .. } => receipt.iter().map(String::as_str).collect(),
        Event::Settled { verdict: SettleVerdict::Many { receipts }, .. } => {
            receipts.iter().map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

fn no_receipt_is_lost(step: &Step<'_>) -> bool {
    // What contradicts it must have been decided first, so that only one is left to keep.
    let before = match step.event {
        Event::Pruned(_) => &[],
        _ => step.row_before().map_or(&[][..], |before| &before.other_receipts),
    };
    let mut receipts = before.iter().map(String::as_str).chain(receipts_of(step.event));
    let after = &step.after.row;
    receipts
        .all(|receipt| after.receipt.as_deref() == Some(receipt) || after.other_receipts.iter().any(|r| r == receipt))
}

fn no_byte_after_revocation(step: &Step<'_>) -> bool {
    let revoked = |row: &Effect| row.state == StateTag::Revoked || row.revoke_wished;
    step.dispatch().is_none() || step.row_before().is_none_or(|before| !revoked(before))
}

/// An operator who looked may say that it exists after all, once something contradicted the row.
fn found_to_exist(step: &Step<'_>) -> bool {
    let frozen = step.row_before().is_some_and(|before| before.frozen);
    frozen && matches!(step.event, Event::Decided { outcome: Outcome::Done { .. }, .. })
}

fn revocation_is_sticky(step: &Step<'_>) -> bool {
    if found_to_exist(step) {
        return true;
    }
    let revoked = step.row_before().is_some_and(|before| before.state == StateTag::Revoked);
    !revoked || matches!(step.after.row.state, StateTag::Revoked | StateTag::Superseded)
}

fn one_key_per_generation(step: &Step<'_>) -> bool {
    let (Some(before), Some(dispatch)) = (step.before, step.dispatch()) else { return true };
    before.keys.get(&dispatch.generation).is_none_or(|key| *key == dispatch.downstream_key)
}

fn generation_needs_proof(step: &Step<'_>) -> bool {
    let Some(before) = step.row_before() else { return step.after.row.generation == 0 || is_pruned(step.event) };
    let rose = step.after.row.generation - before.generation;
    rose == 0 || (rose == 1 && before.attempts.iter().all(|attempt| attempt.proof))
}

fn answers_have_raw_bytes(step: &Step<'_>) -> bool {
    step.after.row.attempts.iter().all(|attempt| {
        let stored = step.after.raw.contains(&attempt.id);
        attempt.responded == stored && (attempt.outcome.is_none() || stored)
    })
}

/// In the state function one version, in the batch one append that expects the version before it.
fn one_event_each(step: &Step<'_>) -> bool {
    let version = step.row_before().map_or(0, |before| before.version);
    let (append, row) = effects::step([1; 32], step.row_before(), step.event.clone()).unwrap();
    let exactly = append.stream == StreamId::effect([1; 32])
        && append.expect == Expect::Version(version)
        && append.event.as_ref() == Some(step.event)
        && append.state == Some(row.state);
    exactly && step.after.row.version == version + 1
}

fn epoch_is_fixed(step: &Step<'_>) -> bool {
    step.row_before().is_none_or(|before| before.epoch == step.after.row.epoch)
}

fn is_pruned(event: &Event) -> bool {
    matches!(event, Event::Pruned(_))
}

fn attempts_stay(step: &Step<'_>) -> bool {
    let Some(before) = step.row_before().filter(|_| !is_pruned(step.event)) else { return true };
    let after = &step.after.row.attempts;
    before.attempts.len() <= after.len() && before.attempts.iter().zip(after).all(|(old, new)| old.id == new.id)
}

fn no_effect_is_proven(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    let proven = !row.attempts.is_empty() && row.attempts.iter().all(|attempt| attempt.proof);
    row.state != StateTag::NoEffect || row.frozen || row.tombstone.is_some() || proven
}

fn done_has_a_receipt(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    row.state != StateTag::Done || row.receipt.as_ref().is_some_and(|receipt| !receipt.is_empty())
}

fn final_states(step: &Step<'_>) -> bool {
    use StateTag::{Done, Superseded, Undone};
    let after = step.after.row.state;
    match step.row_before().map(|before| before.state) {
        Some(Done) => matches!(after, Done | Undone | Superseded),
        Some(Undone) => matches!(after, Undone | Superseded) || found_to_exist(step),
        Some(Superseded) => after == Superseded,
        _ => true,
    }
}

fn only_an_operator_thaws(step: &Step<'_>) -> bool {
    let thawed = step.row_before().is_some_and(|before| before.frozen) && !step.after.row.frozen;
    !thawed || matches!(step.event, Event::Decided { .. })
}

fn dispatches_are_permitted(step: &Step<'_>) -> bool {
    let (Some(before), Some(dispatch)) = (step.row_before(), step.dispatch()) else { return true };
    if dispatch.resend {
        return may_resend(before, &generous()).is_ok();
    }
    answer(Some(before), &[], Sender::Stopped) == Answer::Dispatch { generation: dispatch.generation }
}

fn permissions_are_earned(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    let mut earned = true;
    for sender in SENDERS {
        if let Answer::Dispatch { .. } = answer(Some(row), &[], sender) {
            let may = matches!(row.state, StateTag::Planned | StateTag::AwaitingApproval | StateTag::NoEffect);
            let proven = row.attempts.iter().all(|attempt| attempt.proof) && row.unclassified_attempt().is_none();
            earned &= may && proven && row.receipt.is_none() && !row.frozen && !row.revoke_wished;
        }
        // Rule 1: other values are refused before the state is looked at.
        let other = ["amount".to_owned()];
        if row.binds() && !matches!(row.state, StateTag::Undone | StateTag::Superseded) {
            earned &= answer(Some(row), &other, sender) == Answer::KeyReused(other.to_vec());
        }
    }
    let may_resend = may_resend(row, &generous()).is_ok();
    earned && (!may_resend || (row.state == StateTag::Unknown && !row.frozen && !row.revoke_wished))
}

pub(super) const SENDERS: [Sender; 3] = [Sender::Running, Sender::Stopped, Sender::NotKnown];
