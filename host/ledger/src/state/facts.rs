//! What is found out: how attempts end, what answers and lookups say.

use super::attempt::CLASSIFY_FAILURES_MAX;
use super::next::{Refusal, attempt_mut, no, require, require_thawed};
use super::verbs::become_known;
use super::{Attempt, Effect, StateTag};
use crate::{Ended, Outcome, SettleVerdict};

/// An `absent` verdict needs so many looks.
const LOOKS_MIN: u32 = 2;

/// Rows whose state follows from their attempts.
pub(super) fn is_unsettled(state: StateTag) -> bool {
    matches!(state, StateTag::Dispatched | StateTag::Responded | StateTag::Unknown)
}

/// The state of an unsettled row, from its attempts alone.
pub(super) fn derive(effect: &mut Effect) {
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

pub(super) fn responded(effect: &mut Effect, id: [u8; 16], at: u64, sent_bytes: u64, ended: Ended) -> Refusal {
    let attempt = attempt_mut(effect, id)?;
    if attempt.responded {
        return no("its answer is stored already");
    }
    attempt.responded = true;
    attempt.stopped = true;
    attempt.sent_bytes = Some(sent_bytes);
    attempt.ended = attempt.ended.or(Some(at));
    if ended == Ended::TooLarge {
        // What was cut off may be the only copy of something: a person looks before anything goes on.
        let why = "the answer was larger than is kept".to_owned();
        attempt.outcome = Some(Outcome::Unknown { why: why.clone() });
        effect.unknown_why = Some(why);
        freeze(effect);
    }
    derive(effect);
    Ok(())
}

pub(super) fn not_sent(effect: &mut Effect, id: [u8; 16], at: u64, why: &str) -> Refusal {
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

pub(super) fn lost(effect: &mut Effect, id: [u8; 16], at: u64, why: &str, stopped: bool) -> Refusal {
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

pub(super) fn classify_failed(effect: &mut Effect, id: [u8; 16], why: &str) -> Refusal {
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

pub(super) fn classified(effect: &mut Effect, id: [u8; 16], outcome: &Outcome) -> Refusal {
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
pub(super) fn contradiction_by_proof(effect: &mut Effect) {
    let exists = matches!(effect.state, StateTag::Done | StateTag::Issued | StateTag::Stranded);
    if exists && !effect.attempts.is_empty() && effect.attempts.iter().all(|attempt| attempt.proof) {
        contradicted(effect, None);
    }
}

pub(super) fn freeze(effect: &mut Effect) {
    effect.frozen = true;
}

/// Keeps a contradicting receipt beside the row's own, which is never rewritten.
pub(super) fn contradicted(effect: &mut Effect, receipt: Option<&str>) {
    effect.diverged = true;
    freeze(effect);
    keep_beside(effect, receipt);
}

pub(super) fn keep_beside(effect: &mut Effect, receipt: Option<&str>) {
    let Some(receipt) = receipt else { return };
    let known = effect.receipt.as_deref() == Some(receipt);
    if !known && !effect.other_receipts.iter().any(|other| other == receipt) {
        effect.other_receipts.push(receipt.to_owned());
    }
}

/// The effect exists, says an attempt's answer or a lookup. `against_proof` when the attempt had
/// been proven to have had none.
pub(super) fn exists(effect: &mut Effect, receipt: Option<&str>, tag: StateTag, against_proof: bool) -> Refusal {
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
            effect.approved_by.clear();
        }
        StateTag::Done => effect.receipt = effect.receipt.take().or(receipt.map(str::to_owned)),
        // Known to have existed with this receipt: nothing new.
        StateTag::Undone => {}
        StateTag::Stranded if tag == StateTag::Issued => {}
        StateTag::Superseded if effect.receipt.is_none() => {
            effect.receipt = receipt.map(str::to_owned);
            effect.diverged = true;
            // Nobody knew, and now it is known: those whom the later epoch is not for hear of it.
            if effect.heard_state() == StateTag::Unknown {
                become_known(effect, tag);
            }
        }
        StateTag::Superseded => {}
        StateTag::Stranded | StateTag::NoEffect | StateTag::Revoked => {
            contradicted(effect, receipt);
        }
    }
    Ok(())
}

pub(super) fn settled(effect: &mut Effect, verdict: &SettleVerdict) -> Refusal {
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

pub(super) fn absent(effect: &mut Effect, looks: u32, control: &str) -> Refusal {
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

pub(super) fn all_stopped(effect: &Effect) -> Refusal {
    if effect.attempts.iter().all(|attempt| attempt.proof || attempt.stopped) {
        Ok(())
    } else {
        no("a sender is not known to have stopped; `oncegate ledger fence` its host first")
    }
}

pub(super) fn prove_all(effect: &mut Effect) {
    for attempt in &mut effect.attempts {
        attempt.proof = true;
    }
    derive(effect);
}

pub(super) fn confirmed(effect: &mut Effect, receipt: &str) -> Refusal {
    require(effect, &[StateTag::Done])?;
    if effect.receipt.as_deref() == Some(receipt) {
        effect.confirmed = true;
    } else {
        contradicted(effect, Some(receipt));
    }
    Ok(())
}

pub(super) fn completed(effect: &mut Effect, receipt: Option<&str>) -> Refusal {
    require(effect, &[StateTag::Issued])?;
    let receipt = receipt.or(effect.receipt.as_deref()).map(str::to_owned);
    exists(effect, receipt.as_deref(), StateTag::Done, false)
}

pub(super) fn undone(effect: &mut Effect, by: [u8; 32]) -> Refusal {
    if effect.heard_state() != StateTag::Done {
        return no("it must be done, or superseded when it was");
    }
    require_thawed(effect)?;
    become_known(effect, StateTag::Undone);
    effect.undone_by = Some(by);
    Ok(())
}
