//! What the host, a plan, a person or retention does to a row.

use super::facts::{all_stopped, prove_all};
use super::next::{Refusal, from_tombstone, no, require, require_thawed};
use super::{Attempt, Effect, Illegal, StateTag, Supersession};
use crate::{Dispatch, Outcome, Proposal, Tombstone};

pub(super) fn same_epoch(effect: &Effect, epoch: u32) -> Refusal {
    if effect.epoch == epoch { Ok(()) } else { no("its epoch is another; a later epoch has a key of its own") }
}

pub(super) fn amended(effect: &mut Effect, proposal: &Proposal) -> Refusal {
    require(effect, &[StateTag::Planned, StateTag::AwaitingApproval])?;
    require_thawed(effect)?;
    same_epoch(effect, proposal.epoch)?;
    effect.proposal = Some(Box::new(proposal.clone()));
    effect.approved = None;
    effect.approved_by.clear();
    Ok(())
}

pub(super) fn await_approval(effect: &mut Effect, proposal: &Proposal) -> Refusal {
    require(effect, &[StateTag::Planned, StateTag::AwaitingApproval, StateTag::NoEffect])?;
    require_thawed(effect)?;
    same_epoch(effect, proposal.epoch)?;
    effect.state = StateTag::AwaitingApproval;
    effect.proposal = Some(Box::new(proposal.clone()));
    effect.approved = None;
    effect.approved_by.clear();
    Ok(())
}

pub(super) fn approved(effect: &mut Effect, actor: &str, request_digest: [u8; 32]) -> Refusal {
    require(effect, &[StateTag::AwaitingApproval])?;
    require_thawed(effect)?;
    if actor.is_empty() {
        return no("an approval names its actor");
    }
    let stored = effect.proposal.as_ref().map(|proposal| proposal.request_digest);
    if stored != Some(request_digest) {
        return no("the approval is for another request than the stored one");
    }
    effect.approved = Some(request_digest);
    if !effect.approved_by.iter().any(|known| known == actor) {
        effect.approved_by.push(actor.to_owned());
    }
    Ok(())
}

pub(super) fn dispatched(effect: &mut Effect, dispatch: &Dispatch) -> Refusal {
    require_thawed(effect)?;
    if effect.revoke_wished {
        return no("it is wished revoked; nothing is sent");
    }
    same_epoch(effect, dispatch.epoch)?;
    if effect.attempts.iter().any(|attempt| attempt.id == dispatch.attempt) {
        return no("it has an attempt of this name");
    }
    if effect.attempts.iter().any(Attempt::awaits_classification) {
        return no("an answer is stored and not judged yet");
    }
    if dispatch.resend {
        resent(effect, dispatch)?
    } else {
        sent_afresh(effect, dispatch)?;
        if effect.state != StateTag::AwaitingApproval {
            effect.approved_by.clear();
        }
    }
    effect.attempts.push(Attempt::new(dispatch));
    effect.dispatch = Some(Box::new(dispatch.clone()));
    effect.approved = None;
    effect.reason = None;
    effect.state = StateTag::Dispatched;
    Ok(())
}

pub(super) fn sent_afresh(effect: &mut Effect, dispatch: &Dispatch) -> Refusal {
    let fresh = effect.attempts.is_empty() && effect.state == StateTag::Dispatched;
    if !fresh {
        require(effect, &[StateTag::Planned, StateTag::AwaitingApproval, StateTag::NoEffect])?;
    }
    if effect.state == StateTag::AwaitingApproval && effect.approved != Some(dispatch.request_digest) {
        return no("only the request that was approved may be sent");
    }
    if dispatch.generation != effect.next_generation() {
        return no("the generation rises by one after proof that nothing happened, and only then");
    }
    effect.generation = dispatch.generation;
    effect.first_dispatch_at_of_generation = dispatch.at;
    Ok(())
}

pub(super) fn resent(effect: &Effect, dispatch: &Dispatch) -> Refusal {
    require(effect, &[StateTag::Unknown])?;
    if effect.diverged {
        return no("the row was contradicted");
    }
    let Some(first) = &effect.dispatch else {
        return no("nothing was sent yet");
    };
    if !(first.provider_dedupes && dispatch.provider_dedupes) {
        return no("the provider does not dedupe on key and body");
    }
    let same = dispatch.generation == effect.generation
        && dispatch.request_digest == first.request_digest
        && dispatch.downstream_key == first.downstream_key
        && dispatch.credential == first.credential
        && dispatch.account == first.account
        && dispatch.url == first.url;
    if same { Ok(()) } else { no("a resend repeats request, downstream key, credential, account, URL and generation") }
}

pub(super) fn revoke(effect: &mut Effect, reason: &str) {
    effect.state = StateTag::Revoked;
    effect.approved = None;
    effect.approved_by.clear();
    effect.reason = Some(reason.to_owned());
}

pub(super) fn superseded(effect: &mut Effect, epoch: u32, for_whom: &str) -> Refusal {
    require(
        effect,
        &[
            StateTag::Planned,
            StateTag::Done,
            StateTag::NoEffect,
            StateTag::Stranded,
            StateTag::Unknown,
            StateTag::Undone,
            StateTag::Revoked,
        ],
    )?;
    if effect.epoch.checked_add(1) != Some(epoch) {
        return no("the later epoch is the next one");
    }
    if for_whom.is_empty() {
        return no("it must say who may use the later epoch");
    }
    effect.superseded_by = Some(Supersession { epoch, for_whom: for_whom.to_owned(), before: effect.state });
    effect.state = StateTag::Superseded;
    Ok(())
}

pub(super) fn decided(effect: &mut Effect, outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::Done { receipt } => decided_done(effect, receipt),
        Outcome::NoEffect { reason } => decided_no_effect(effect, reason),
        Outcome::Issued { .. } | Outcome::Unknown { .. } => no("an operator decides done or no-effect"),
    }
}

pub(super) fn decided_done(effect: &mut Effect, receipt: &str) -> Refusal {
    if receipt.is_empty() {
        return no("done needs a receipt");
    }
    if effect.receipt.as_deref().is_some_and(|known| known != receipt) {
        return no("a receipt is never rewritten");
    }
    if !may_thaw(effect) {
        require(effect, &[StateTag::Unknown, StateTag::Issued, StateTag::Stranded])?;
    }
    effect.receipt = Some(receipt.to_owned());
    become_known(effect, StateTag::Done);
    effect.frozen = false;
    effect.approved = None;
    effect.reason = None;
    effect.unknown_why = None;
    Ok(())
}

pub(super) fn decided_no_effect(effect: &mut Effect, reason: &str) -> Refusal {
    if !may_thaw(effect) {
        require(effect, &[StateTag::Unknown])?;
    }
    if effect.receipt.is_some() {
        return no("its receipt is known; supersede it to do it again");
    }
    all_stopped(effect)?;
    effect.frozen = false;
    effect.reason = Some(reason.to_owned());
    prove_all(effect);
    if effect.state == StateTag::Superseded {
        become_known(effect, StateTag::NoEffect);
    }
    Ok(())
}

/// A row whose state no event but a decision changes any more: contradicted, or superseded while nobody
/// knew.
fn may_thaw(effect: &Effect) -> bool {
    let superseded = effect.state == StateTag::Superseded && effect.heard_state() == StateTag::Unknown;
    superseded || effect.frozen && !super::facts::is_unsettled(effect.state)
}

/// A superseded row stays so: what is known now is what others hear of it.
pub(super) fn become_known(effect: &mut Effect, state: StateTag) {
    match &mut effect.superseded_by {
        Some(supersession) => supersession.before = state,
        None => effect.state = state,
    }
}

/// States that nothing but a new decision changes.
const DECIDED: [StateTag; 5] =
    [StateTag::Done, StateTag::NoEffect, StateTag::Revoked, StateTag::Superseded, StateTag::Undone];

pub(super) fn may_prune(effect: &Effect) -> Result<(), Illegal> {
    let refuse = |why: String| Illegal::new("pruned", effect.state, &why);
    require(effect, &DECIDED).and_then(|()| require_thawed(effect)).map_err(refuse)
}

/// The text of what is decided may be erased: an open row needs its stored request, and a frozen one is looked
/// at by a person first. One that was superseded while nobody knew may still have to be found.
pub(super) fn erased(effect: &mut Effect) -> Refusal {
    require(effect, &DECIDED)?;
    require_thawed(effect)?;
    if effect.heard_state() == StateTag::Unknown {
        return no("nobody knows yet whether it happened; resolve it first");
    }
    // Of what is known to exist no answer is judged any more; of all else one may say otherwise.
    let exists = matches!(effect.heard_state(), StateTag::Done | StateTag::Undone);
    if !exists && effect.unclassified_attempt().is_some() {
        return no("an answer is stored and not judged yet");
    }
    if effect.open_attempt().is_some() {
        return no("an attempt has not ended");
    }
    effect.erasures = effect.erasures.saturating_add(1);
    Ok(())
}

pub(super) fn key_destroyed(effect: &Effect, generation: u32) -> Refusal {
    if generation < effect.erasures { Ok(()) } else { no("its erasure is not on record") }
}

pub(super) fn pruned(effect: &mut Effect, tombstone: &Tombstone, sealed: bool) -> Refusal {
    let mut expected = effect.to_tombstone(tombstone.at).map_err(|illegal| illegal.why)?;
    if effect.tombstone.is_some() && effect.attempts.is_empty() && effect.proposal.is_none() {
        return no("it is pruned already");
    }
    expected.at = tombstone.at;
    if !same_tombstone(&expected, tombstone, sealed) {
        return no("the tombstone does not say what the row says");
    }
    let version = effect.version;
    let updated_at = effect.updated_at;
    *effect = from_tombstone(tombstone);
    effect.version = version;
    effect.updated_at = updated_at;
    Ok(())
}

/// Private parts that cannot be read are compared with nothing.
fn same_tombstone(expected: &Tombstone, found: &Tombstone, sealed: bool) -> bool {
    let without_text = |tombstone: &Tombstone| Tombstone {
        label: String::new(),
        generated: [0; 32],
        reason: None,
        failed_later: None,
        ..tombstone.clone()
    };
    if without_text(expected) != without_text(found) {
        return false;
    }
    let withheld = |text: &Option<String>| text.as_deref().is_some_and(crate::private::is_withheld);
    let same = |one: &Option<String>, other: &Option<String>| one == other || withheld(one) || withheld(other);
    let label = |tombstone: &Tombstone| Some(tombstone.label.clone());
    let unread = expected.generated == [0; 32] || found.generated == [0; 32];
    sealed
        || same(&label(expected), &label(found))
            && same(&expected.reason, &found.reason)
            && same(&expected.failed_later, &found.failed_later)
            && (unread || expected.generated == found.generated)
}
