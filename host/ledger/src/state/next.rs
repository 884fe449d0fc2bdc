//! Legality and fold in one: an event either changes the row or is refused.

use super::attempt::CLASSIFY_FAILURES_MAX;
use super::{Attempt, Effect, Illegal, StateTag, Supersession};
use crate::{Dispatch, Event, Outcome, Proposal, SettleVerdict, Tombstone};

/// An `absent` verdict needs so many looks.
const LOOKS_MIN: u32 = 2;

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
    let before = effect.as_ref().map(|effect| effect.state);
    let refuse = |why: String| Illegal {
        event: event.name(),
        state: before.map_or("absent", StateTag::as_str).to_owned(),
        why,
    };
    let mut effect = match effect {
        Some(mut effect) => {
            apply(&mut effect, event).map_err(refuse)?;
            effect
        }
        None => begin(event).map_err(refuse)?,
    };
    effect.version = effect.version.saturating_add(1);
    let at = event.at().unwrap_or_default();
    effect.updated_at = effect.updated_at.max(at);
    if before != Some(effect.state) {
        effect.state_since = at;
    }
    Ok(effect)
}

type Refusal = Result<(), String>;

fn no<T>(why: &str) -> Result<T, String> {
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
        Event::Pruned(tombstone) => Ok(from_tombstone(tombstone)),
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
        dispatch: None,
        first_dispatch_at_of_generation: 0,
        updated_at: 0,
        state_since: 0,
        unknown_why: None,
        tombstone: None,
    }
}

fn proposed(state: StateTag, proposal: &Proposal) -> Effect {
    let mut effect = empty(state, proposal.epoch, 0);
    effect.proposal = Some(Box::new(proposal.clone()));
    effect
}

fn from_tombstone(tombstone: &Tombstone) -> Effect {
    let mut effect = empty(tombstone.state, tombstone.epoch, tombstone.generation);
    effect.receipt = tombstone.receipt.clone();
    effect.reason = tombstone.reason.clone();
    effect.confirmed = tombstone.confirmed;
    effect.superseded_by = tombstone
        .superseded_by
        .clone()
        .map(|(epoch, for_whom, before)| Supersession { epoch, for_whom, before });
    effect.tombstone = Some(Box::new(tombstone.clone()));
    effect
}

fn apply(effect: &mut Effect, event: &Event) -> Refusal {
    match event {
        Event::Planned(_) => no("freezing a plan reports existing rows and never resets them"),
        Event::Amended(proposal) => amended(effect, proposal),
        Event::AwaitingApproval(proposal) => await_approval(effect, proposal),
        Event::Approved { actor, request_digest, .. } => approved(effect, actor, *request_digest),
        Event::Denied { actor, reason, .. } => {
            require(effect, &[StateTag::AwaitingApproval])?;
            on_record(actor, reason)?;
            revoke(effect, reason);
            Ok(())
        }
        Event::Dispatched(dispatch) => dispatched(effect, dispatch),
        Event::Evidence { attempt, .. } => attempt_mut(effect, *attempt).map(|_| ()),
        Event::Responded { attempt, at, sent_bytes, .. } => responded(effect, *attempt, *at, *sent_bytes),
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
        Event::Pruned(tombstone) => pruned(effect, tombstone),
        _ => no("it belongs to another kind of stream"),
    }
}

fn require(effect: &Effect, states: &[StateTag]) -> Refusal {
    if states.contains(&effect.state) {
        return Ok(());
    }
    let names: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    Err(format!("it must be {}", names.join(" or ")))
}

fn require_thawed(effect: &Effect) -> Refusal {
    if effect.frozen { no("its key is frozen; an operator decides first") } else { Ok(()) }
}

fn on_record(actor: &str, reason: &str) -> Refusal {
    if actor.is_empty() || reason.is_empty() { no("a decision names its actor and its reason") } else { Ok(()) }
}

fn attempt_mut(effect: &mut Effect, id: [u8; 16]) -> Result<&mut Attempt, String> {
    match effect.attempts.iter_mut().find(|attempt| attempt.id == id) {
        Some(attempt) => Ok(attempt),
        None => no("it has no attempt of this name"),
    }
}

// ---- before anything is sent ----

fn same_epoch(effect: &Effect, epoch: u32) -> Refusal {
    if effect.epoch == epoch { Ok(()) } else { no("its epoch is another; a later epoch has a key of its own") }
}

fn amended(effect: &mut Effect, proposal: &Proposal) -> Refusal {
    require(effect, &[StateTag::Planned, StateTag::AwaitingApproval])?;
    require_thawed(effect)?;
    same_epoch(effect, proposal.epoch)?;
    effect.proposal = Some(Box::new(proposal.clone()));
    effect.approved = None;
    Ok(())
}

fn await_approval(effect: &mut Effect, proposal: &Proposal) -> Refusal {
    require(effect, &[StateTag::Planned, StateTag::AwaitingApproval, StateTag::NoEffect])?;
    require_thawed(effect)?;
    same_epoch(effect, proposal.epoch)?;
    effect.state = StateTag::AwaitingApproval;
    effect.proposal = Some(Box::new(proposal.clone()));
    effect.approved = None;
    Ok(())
}

fn approved(effect: &mut Effect, actor: &str, request_digest: [u8; 32]) -> Refusal {
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
    Ok(())
}

fn dispatched(effect: &mut Effect, dispatch: &Dispatch) -> Refusal {
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
    if dispatch.resend { resent(effect, dispatch)? } else { sent_afresh(effect, dispatch)? }
    effect.attempts.push(Attempt::new(dispatch));
    effect.dispatch = Some(Box::new(dispatch.clone()));
    effect.approved = None;
    effect.reason = None;
    effect.state = StateTag::Dispatched;
    Ok(())
}

fn sent_afresh(effect: &mut Effect, dispatch: &Dispatch) -> Refusal {
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

fn resent(effect: &Effect, dispatch: &Dispatch) -> Refusal {
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

// ---- an attempt ends ----

/// Rows whose state follows from their attempts.
fn is_unsettled(state: StateTag) -> bool {
    matches!(state, StateTag::Dispatched | StateTag::Responded | StateTag::Unknown)
}

/// The state of an unsettled row, from its attempts alone.
fn derive(effect: &mut Effect) {
    if !is_unsettled(effect.state) {
        return;
    }
    let attempts = &effect.attempts;
    effect.state = if attempts.iter().any(Attempt::awaits_classification) {
        StateTag::Responded
    } else if attempts.iter().any(Attempt::is_open) {
        StateTag::Dispatched
    } else if !attempts.iter().all(|attempt| attempt.proof) {
        StateTag::Unknown
    } else if effect.revoke_wished {
        StateTag::Revoked
    } else {
        StateTag::NoEffect
    };
    if effect.state != StateTag::Unknown {
        effect.unknown_why = None;
    }
}

fn responded(effect: &mut Effect, id: [u8; 16], at: u64, sent_bytes: u64) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if attempt.responded {
        return no("its answer is stored already");
    }
    attempt.responded = true;
    attempt.stopped = true;
    attempt.sent_bytes = Some(sent_bytes);
    attempt.ended = attempt.ended.or(Some(at));
    derive(effect);
    Ok(())
}

fn not_sent(effect: &mut Effect, id: [u8; 16], at: u64, why: &str) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if attempt.responded {
        return no("its answer is stored: something was sent");
    }
    attempt.stopped = true;
    attempt.sent_bytes = Some(0);
    attempt.ended = attempt.ended.or(Some(at));
    // Through a relay, zero bytes handed over says nothing of what the relay may have sent.
    attempt.proof |= attempt.egress_direct;
    effect.unknown_why = Some(why.to_owned());
    effect.reason = Some(why.to_owned());
    derive(effect);
    contradiction_by_proof(effect);
    Ok(())
}

fn lost(effect: &mut Effect, id: [u8; 16], at: u64, why: &str, stopped: bool) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if attempt.responded {
        return no("its answer is stored");
    }
    if attempt.ended.is_some() && (attempt.stopped || !stopped) {
        return no("that is known already");
    }
    attempt.stopped |= stopped;
    attempt.ended = attempt.ended.or(Some(at));
    effect.unknown_why = Some(why.to_owned());
    derive(effect);
    Ok(())
}

fn classify_failed(effect: &mut Effect, id: [u8; 16], why: &str) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if !attempt.awaits_classification() {
        return no("there is no answer to judge");
    }
    attempt.classify_failures += 1;
    if attempt.classify_failures >= CLASSIFY_FAILURES_MAX {
        attempt.outcome = Some(Outcome::Unknown { why: why.to_owned() });
        effect.unknown_why = Some(why.to_owned());
    }
    derive(effect);
    Ok(())
}

fn classified(effect: &mut Effect, id: [u8; 16], outcome: &Outcome) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if !attempt.awaits_classification() {
        return no("there is no answer to judge");
    }
    let proven_before = attempt.proof;
    attempt.outcome = Some(outcome.clone());
    match outcome {
        Outcome::Done { receipt } => {
            attempt.proof = false;
            exists(effect, Some(receipt), StateTag::Done, proven_before)
        }
        Outcome::Issued { receipt } => {
            attempt.proof = false;
            exists(effect, receipt.as_deref(), StateTag::Issued, proven_before)
        }
        Outcome::NoEffect { reason } => {
            attempt.proof = true;
            effect.reason = Some(reason.clone());
            derive(effect);
            contradiction_by_proof(effect);
            Ok(())
        }
        Outcome::Unknown { why } => {
            effect.unknown_why = Some(why.clone());
            derive(effect);
            Ok(())
        }
    }
}

/// A proof came in for the last attempt that could have caused what the row says exists.
fn contradiction_by_proof(effect: &mut Effect) {
    let exists = matches!(effect.state, StateTag::Done | StateTag::Issued | StateTag::Stranded);
    if exists && !effect.attempts.is_empty() && effect.attempts.iter().all(|attempt| attempt.proof) {
        contradicted(effect, None);
    }
}

// ---- facts ----

fn freeze(effect: &mut Effect) {
    effect.frozen = true;
}

/// Keeps a contradicting receipt beside the row's own, which is never rewritten.
fn contradicted(effect: &mut Effect, receipt: Option<&str>) {
    effect.diverged = true;
    freeze(effect);
    keep_beside(effect, receipt);
}

fn keep_beside(effect: &mut Effect, receipt: Option<&str>) {
    let Some(receipt) = receipt else { return };
    let known = effect.receipt.as_deref() == Some(receipt);
    if !known && !effect.other_receipts.iter().any(|other| other == receipt) {
        effect.other_receipts.push(receipt.to_owned());
    }
}

/// The effect exists, says an attempt's answer or a lookup. `against_proof` when the attempt had
/// been proven to have had none.
fn exists(effect: &mut Effect, receipt: Option<&str>, tag: StateTag, against_proof: bool) -> Refusal {
    if receipt == Some("") || (receipt.is_none() && tag == StateTag::Done) {
        return no("done needs a receipt");
    }
    let differs = receipt.is_some() && effect.receipt.is_some() && effect.receipt.as_deref() != receipt;
    if differs || against_proof || effect.frozen {
        // On a frozen row no fact decides any more, and none is lost.
        contradicted(effect, receipt);
        derive(effect);
        return Ok(());
    }
    match effect.state {
        // A row that waits again after proof: the fact contradicts the proof.
        StateTag::AwaitingApproval if !effect.attempts.is_empty() => contradicted(effect, receipt),
        StateTag::Dispatched
        | StateTag::Responded
        | StateTag::Unknown
        | StateTag::Issued
        | StateTag::Planned
        | StateTag::AwaitingApproval => {
            effect.receipt = effect.receipt.take().or(receipt.map(str::to_owned));
            effect.state = tag;
            effect.reason = None;
            effect.unknown_why = None;
            effect.approved = None;
        }
        StateTag::Done => effect.receipt = effect.receipt.take().or(receipt.map(str::to_owned)),
        // Known to have existed with this receipt: nothing new.
        StateTag::Undone => {}
        StateTag::Stranded if tag == StateTag::Issued => {}
        StateTag::Superseded if effect.receipt.is_none() => {
            effect.receipt = receipt.map(str::to_owned);
            effect.diverged = true;
        }
        StateTag::Superseded => {}
        StateTag::Stranded | StateTag::NoEffect | StateTag::Revoked => {
            contradicted(effect, receipt);
        }
    }
    Ok(())
}

fn settled(effect: &mut Effect, verdict: &SettleVerdict) -> Refusal {
    match verdict {
        SettleVerdict::One { receipt, mismatched } => {
            if receipt.is_empty() {
                return no("an object that was found has an identifier");
            }
            if !mismatched.is_empty() {
                contradicted(effect, Some(receipt));
                return Ok(());
            }
            exists(effect, Some(receipt), StateTag::Done, false)?;
            effect.confirmed |= effect.state == StateTag::Done && effect.receipt.as_ref() == Some(receipt);
            Ok(())
        }
        SettleVerdict::Many { receipts } => {
            for receipt in receipts {
                keep_beside(effect, Some(receipt));
            }
            freeze(effect);
            // Many where one or none was certain contradicts it; on an unknown row it only freezes.
            effect.diverged |= !is_unsettled(effect.state);
            Ok(())
        }
        SettleVerdict::Absent { looks, control, .. } => absent(effect, *looks, control),
        SettleVerdict::Undetermined { why } => {
            if effect.state == StateTag::Unknown {
                effect.unknown_why = Some(why.clone());
            }
            Ok(())
        }
    }
}

fn absent(effect: &mut Effect, looks: u32, control: &str) -> Refusal {
    if matches!(effect.state, StateTag::Done | StateTag::Issued | StateTag::Stranded | StateTag::NoEffect) {
        return Ok(()); // A lookup that lags is no proof against a receipt, and proves nothing new.
    }
    require(effect, &[StateTag::Unknown])?;
    require_thawed(effect)?;
    if looks < LOOKS_MIN {
        return no("absence is looked for at least twice");
    }
    if control.is_empty() {
        return no("absence counts only after the same lookup found a known object");
    }
    all_stopped(effect)?;
    prove_all(effect);
    Ok(())
}

fn all_stopped(effect: &Effect) -> Refusal {
    if effect.attempts.iter().all(|attempt| attempt.proof || attempt.stopped) {
        Ok(())
    } else {
        no("a sender is not known to have stopped; `oncegate ledger fence` its host first")
    }
}

fn prove_all(effect: &mut Effect) {
    for attempt in &mut effect.attempts {
        attempt.proof = true;
    }
    derive(effect);
}

fn confirmed(effect: &mut Effect, receipt: &str) -> Refusal {
    require(effect, &[StateTag::Done])?;
    if effect.receipt.as_deref() == Some(receipt) {
        effect.confirmed = true;
    } else {
        contradicted(effect, Some(receipt));
    }
    Ok(())
}

fn completed(effect: &mut Effect, receipt: Option<&str>) -> Refusal {
    require(effect, &[StateTag::Issued])?;
    let receipt = receipt.or(effect.receipt.as_deref()).map(str::to_owned);
    exists(effect, receipt.as_deref(), StateTag::Done, false)
}

fn undone(effect: &mut Effect, by: [u8; 32]) -> Refusal {
    require(effect, &[StateTag::Done])?;
    require_thawed(effect)?;
    effect.state = StateTag::Undone;
    effect.undone_by = Some(by);
    Ok(())
}

// ---- operators and retention ----

fn revoke(effect: &mut Effect, reason: &str) {
    effect.state = StateTag::Revoked;
    effect.approved = None;
    effect.reason = Some(reason.to_owned());
}

fn superseded(effect: &mut Effect, epoch: u32, for_whom: &str) -> Refusal {
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
    effect.superseded_by =
        Some(Supersession { epoch, for_whom: for_whom.to_owned(), before: effect.state });
    effect.state = StateTag::Superseded;
    Ok(())
}

fn decided(effect: &mut Effect, outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::Done { receipt } => decided_done(effect, receipt),
        Outcome::NoEffect { reason } => decided_no_effect(effect, reason),
        Outcome::Issued { .. } | Outcome::Unknown { .. } => no("an operator decides done or no-effect"),
    }
}

fn decided_done(effect: &mut Effect, receipt: &str) -> Refusal {
    if receipt.is_empty() {
        return no("done needs a receipt");
    }
    if effect.receipt.as_deref().is_some_and(|known| known != receipt) {
        return no("a receipt is never rewritten");
    }
    let open = [StateTag::Unknown, StateTag::Issued, StateTag::Stranded];
    let contradicted = [StateTag::Done, StateTag::NoEffect];
    if !(effect.frozen && contradicted.contains(&effect.state)) {
        require(effect, &open)?;
    }
    effect.receipt = Some(receipt.to_owned());
    effect.state = StateTag::Done;
    effect.frozen = false;
    effect.reason = None;
    effect.unknown_why = None;
    Ok(())
}

fn decided_no_effect(effect: &mut Effect, reason: &str) -> Refusal {
    let contradicted = [StateTag::NoEffect, StateTag::Revoked];
    if !(effect.frozen && contradicted.contains(&effect.state)) {
        require(effect, &[StateTag::Unknown])?;
    }
    if effect.receipt.is_some() {
        return no("its receipt is known; supersede it to do it again");
    }
    all_stopped(effect)?;
    effect.frozen = false;
    effect.reason = Some(reason.to_owned());
    prove_all(effect);
    Ok(())
}

pub(super) fn may_prune(effect: &Effect) -> Result<(), Illegal> {
    let refuse = |why: String| Illegal::new("pruned", effect.state, &why);
    require(
        effect,
        &[StateTag::Done, StateTag::NoEffect, StateTag::Revoked, StateTag::Superseded, StateTag::Undone],
    )
    .and_then(|()| require_thawed(effect))
    .map_err(refuse)
}

fn pruned(effect: &mut Effect, tombstone: &Tombstone) -> Refusal {
    let mut expected = effect.to_tombstone(tombstone.at).map_err(|illegal| illegal.why)?;
    if effect.tombstone.is_some() {
        return no("it is pruned already");
    }
    expected.at = tombstone.at;
    if &expected != tombstone {
        return no("the tombstone does not say what the row says");
    }
    let version = effect.version;
    let updated_at = effect.updated_at;
    *effect = from_tombstone(tombstone);
    effect.version = version;
    effect.updated_at = updated_at;
    Ok(())
}
