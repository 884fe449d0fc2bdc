//! Legality and fold in one: an event either changes the row or is refused.

use super::facts::*;
use super::verbs::*;
use super::{Attempt, Effect, Illegal, StateTag, Supersession};
use crate::{Event, Proposal, Tombstone};

/// The row after `event`, if the event is legal for it.
///
/// # Errors
/// [`Illegal`] when the event must not happen now; the row stays as it was.
pub fn next(effect: Option<&Effect>, event: &Event) -> Result<Effect, Illegal> {
    step(effect.cloned(), event)
}

/// Folds the events of one stream, in order.
///
/// # Errors
/// [`Illegal`] at the first event that must not have happened.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Option<Effect>, Illegal> {
    events.into_iter().try_fold(None, |effect, event| step(effect, event).map(Some))
}

fn step(effect: Option<Effect>, event: &Event) -> Result<Effect, Illegal> {
    // What a row is does not depend on its private parts, so that they need not be read.
    let sealed = matches!(event, Event::Private(_));
    let event = event.plain();
    let before = effect.as_ref().map(|effect| effect.state);
    let refuse =
        |why: String| Illegal { event: event.name(), state: before.map_or("absent", StateTag::as_str).to_owned(), why };
    let mut effect = match effect {
        Some(mut effect) => {
            once(&effect, event).and_then(|()| apply(&mut effect, event, sealed)).map_err(refuse)?;
            effect
        }
        None => begin(event).map_err(refuse)?,
    };
    effect.decisions.extend(event.decision().map(str::to_owned));
    effect.version = effect.version.saturating_add(1);
    let at = event.at().unwrap_or_default();
    effect.updated_at = effect.updated_at.max(at);
    // A tombstone says itself since when.
    if before != Some(effect.state) && !matches!(event, Event::Pruned(_)) {
        effect.state_since = at;
    }
    Ok(effect)
}

/// A decision is taken once, however often it is told.
fn once(effect: &Effect, event: &Event) -> Refusal {
    match event.decision() {
        Some(id) if effect.decisions.iter().any(|known| known == id) => no("this decision is recorded already"),
        _ => Ok(()),
    }
}

pub(super) type Refusal = Result<(), String>;

pub(super) fn no<T>(why: &str) -> Result<T, String> {
    Err(why.to_owned())
}

fn begin(event: &Event) -> Result<Effect, String> {
    match event {
        Event::Planned(proposal) => Ok(proposed(StateTag::Planned, proposal)),
        Event::AwaitingApproval(proposal) => Ok(proposed(StateTag::AwaitingApproval, proposal)),
        Event::Dispatched(dispatch) => {
            let mut effect = empty(StateTag::Dispatched, dispatch.epoch, dispatch.generation);
            if dispatch.generation != 0 {
                return no("the first generation is 0");
            }
            dispatched(&mut effect, dispatch)?;
            Ok(effect)
        }
        Event::Pruned(tombstone) => {
            let effect = from_tombstone(tombstone);
            may_prune(&effect).map_err(|illegal| illegal.why)?;
            if effect.state == StateTag::Done && effect.receipt.as_deref().is_none_or(str::is_empty) {
                return no("done needs a receipt");
            }
            Ok(effect)
        }
        _ => no("it starts with a plan, an approval or a dispatch"),
    }
}

fn empty(state: StateTag, epoch: u32, generation: u32) -> Effect {
    Effect {
        state,
        version: 0,
        generation,
        epoch,
        attempts: Vec::new(),
        receipt: None,
        other_receipts: Vec::new(),
        reason: None,
        confirmed: false,
        diverged: false,
        frozen: false,
        revoke_wished: false,
        superseded_by: None,
        undone_by: None,
        failed_later: None,
        proposal: None,
        approved: None,
        approved_by: Vec::new(),
        dispatch: None,
        first_dispatch_at_of_generation: 0,
        updated_at: 0,
        state_since: 0,
        unknown_why: None,
        tombstone: None,
        decisions: Vec::new(),
        erasures: 0,
    }
}

fn proposed(state: StateTag, proposal: &Proposal) -> Effect {
    let mut effect = empty(state, proposal.epoch, 0);
    effect.proposal = Some(Box::new(proposal.clone()));
    effect
}

pub(super) fn from_tombstone(tombstone: &Tombstone) -> Effect {
    let mut effect = empty(tombstone.state, tombstone.epoch, tombstone.generation);
    effect.receipt = tombstone.receipt.clone();
    effect.reason = tombstone.reason.clone();
    effect.confirmed = tombstone.confirmed;
    effect.superseded_by =
        tombstone.superseded_by.clone().map(|(epoch, for_whom, before)| Supersession { epoch, for_whom, before });
    effect.state_since = tombstone.settled_at;
    effect.other_receipts = tombstone.other_receipts.clone();
    effect.diverged = tombstone.diverged;
    effect.undone_by = tombstone.undone_by;
    effect.failed_later = tombstone.failed_later.clone();
    effect.decisions = tombstone.decisions.clone();
    effect.erasures = tombstone.erasures;
    effect.tombstone = Some(Box::new(tombstone.clone()));
    effect
}

fn apply(effect: &mut Effect, event: &Event, sealed: bool) -> Refusal {
    match event {
        Event::Pruned(tombstone) => pruned(effect, tombstone, sealed),
        Event::Planned(_) => no("freezing a plan reports existing rows and never resets them"),
        Event::Amended(proposal) => amended(effect, proposal),
        Event::AwaitingApproval(proposal) => await_approval(effect, proposal),
        Event::Approved { actor, request_digest, .. } => approved(effect, actor, *request_digest),
        Event::Dispatched(dispatch) => dispatched(effect, dispatch),
        Event::Evidence { attempt, .. } => attempt_mut(effect, *attempt).map(|_| ()),
        Event::Responded { attempt, at, sent_bytes, ended, .. } => {
            responded(effect, *attempt, *at, *sent_bytes, *ended)
        }
        Event::NotSent { attempt, at, why } => not_sent(effect, *attempt, *at, why),
        Event::Lost { attempt, at, why, sender_stopped } => lost(effect, *attempt, *at, why, *sender_stopped),
        Event::Classified { attempt, outcome, .. } => classified(effect, *attempt, outcome),
        Event::ClassifyFailed { attempt, why, .. } => classify_failed(effect, *attempt, why),
        Event::Settled { verdict, .. } => settled(effect, verdict),
        Event::Confirmed { receipt, .. } => confirmed(effect, receipt),
        Event::Diverged { .. } => {
            freeze(effect);
            effect.diverged = true;
            Ok(())
        }
        Event::FailedLater { why, .. } => {
            require(effect, &[StateTag::Done])?;
            effect.failed_later = Some(why.clone());
            Ok(())
        }
        Event::Completed { receipt, .. } => completed(effect, receipt.as_deref()),
        Event::Stranded { why, .. } => {
            require(effect, &[StateTag::Issued])?;
            effect.state = StateTag::Stranded;
            effect.reason = Some(why.clone());
            Ok(())
        }
        decision => apply_decision(effect, decision),
    }
}

/// What the undoing operation, a person or retention decides.
fn apply_decision(effect: &mut Effect, event: &Event) -> Refusal {
    match event {
        Event::Denied { actor, reason, .. } => {
            require(effect, &[StateTag::AwaitingApproval])?;
            on_record(actor, reason)?;
            revoke(effect, reason);
            Ok(())
        }
        Event::Undone { by, .. } => undone(effect, *by),
        Event::RevokeWished { actor, reason, .. } => {
            require(effect, &[StateTag::Dispatched, StateTag::Responded, StateTag::Unknown])?;
            on_record(actor, reason)?;
            effect.revoke_wished = true;
            Ok(())
        }
        Event::Revoked { actor, reason, .. } => {
            require(effect, &[StateTag::Planned, StateTag::AwaitingApproval, StateTag::NoEffect])?;
            on_record(actor, reason)?;
            revoke(effect, reason);
            Ok(())
        }
        Event::Superseded { actor, reason, epoch, for_whom, .. } => {
            on_record(actor, reason)?;
            superseded(effect, *epoch, for_whom)
        }
        Event::Decided { actor, reason, outcome, .. } => {
            on_record(actor, reason)?;
            decided(effect, outcome)
        }
        Event::Erased { actor, reason, .. } => {
            on_record(actor, reason)?;
            erased(effect)
        }
        Event::KeyDestroyed { generation, .. } => key_destroyed(effect, *generation),
        _ => no("it belongs to another kind of stream"),
    }
}

pub(super) fn require(effect: &Effect, states: &[StateTag]) -> Refusal {
    if states.contains(&effect.state) {
        return Ok(());
    }
    let names: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    Err(format!("it must be {}", names.join(" or ")))
}

pub(super) fn require_thawed(effect: &Effect) -> Refusal {
    if effect.frozen { no("its key is frozen; an operator decides first") } else { Ok(()) }
}

fn on_record(actor: &str, reason: &str) -> Refusal {
    if actor.is_empty() || reason.is_empty() { no("a decision names its actor and its reason") } else { Ok(()) }
}

pub(super) fn attempt_mut(effect: &mut Effect, id: [u8; 16]) -> Result<&mut Attempt, String> {
    match effect.attempts.iter_mut().find(|attempt| attempt.id == id) {
        Some(attempt) => Ok(attempt),
        None => no("it has no attempt of this name"),
    }
}
