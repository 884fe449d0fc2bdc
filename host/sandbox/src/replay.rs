//! The stored answer of a settled effect, as the guest of a later call is given it.

use oncegate_contract::{Answer, Operation, Segment, Settle};
use oncegate_ledger::state::{Attempt, Effect, StateTag};
use oncegate_ledger::{EffectsError, Event, LedgerError, Outcome, SettleVerdict};

use crate::attempt::{self, AttemptError};
use crate::host::{Book, Host};
use crate::http;

/// The answer that decided the row; for a row that a lookup settled, the object that was found.
///
/// An answer that gives its credential away is given without it, and where that cannot be made sure of,
/// not at all.
pub(crate) async fn answer(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    operation: &Operation,
) -> Result<Answer, AttemptError> {
    let whole = |body| Answer { status: 200, headers: Vec::new(), body, complete: true };
    let nothing = || b"{}".to_vec();
    match first_answer(host, book, key, row, operation).await? {
        First::Given(answer) => return Ok(answer),
        First::Withheld { status } => return Ok(Answer { status, ..whole(nothing()) }),
        First::None => {}
    }
    let found = found_object(book, key, row, operation).await?;
    Ok(whole(found.or_else(|| receipt_alone(row, operation)).unwrap_or_else(nothing)))
}

/// What the provider itself answered.
pub(crate) enum First {
    /// Without the credential, where it gave that away.
    Given(Answer),
    /// It gives its credential away, and that cannot be taken out any more.
    Withheld {
        /// Its HTTP status.
        status: u16,
    },
    /// The row rests on something else, or the bytes were dropped, erased or cannot be read here.
    None,
}

/// The answer that decided the row.
pub(crate) async fn first_answer(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    operation: &Operation,
) -> Result<First, AttemptError> {
    if let Some(attempt) = row.attempts.iter().rev().find(|attempt| decided(row, attempt)) {
        let (raw, answered) = match attempt::stored(book, key, attempt.id).await {
            Ok(stored) => stored,
            Err(error) if withheld(row, &error) => return Ok(First::None),
            Err(error) => return Err(EffectsError::from(error).into()),
        };
        let complete = answered.as_ref().is_some_and(|answered| answered.complete);
        if let Ok(mut answer) = http::parse(&operation.method, &raw, complete).await {
            if answered.is_some_and(|answered| answered.echoes) {
                match host.secret_of(row.dispatch.as_deref()).await {
                    Some(secret) => secret.scrub(&mut answer),
                    None => return Ok(First::Withheld { status: answer.status }),
                }
            }
            return Ok(First::Given(answer));
        }
    }
    Ok(First::None)
}

/// Whether the answer's bytes cannot be had: the row says what it came to all the same.
fn withheld(row: &Effect, error: &LedgerError) -> bool {
    match error {
        LedgerError::Gone { .. } | LedgerError::Erased => true,
        error if error.withholds_bytes() => {
            tracing::error!(label = row.label(), %error, "a stored answer");
            true
        }
        _ => false,
    }
}

/// What is left of the provider's answer where retention or a person's word is all there is: the receipt,
/// in the place where the answer would have it.
fn receipt_alone(row: &Effect, operation: &Operation) -> Option<Vec<u8>> {
    let (receipt, pointer) = (row.receipt.as_ref()?, operation.receipt.as_ref()?);
    let mut body = serde_json::Value::String(receipt.clone());
    for step in pointer.segments().iter().rev() {
        body = match step {
            Segment::Name(name) => serde_json::json!({ name: body }),
            Segment::Any => serde_json::json!([body]),
        };
    }
    Some(body.to_string().into_bytes())
}

/// Whether this attempt's answer is what the row's state rests on.
pub(crate) fn decided(row: &Effect, attempt: &Attempt) -> bool {
    match &attempt.outcome {
        Some(Outcome::Done { receipt }) => row.receipt.as_ref() == Some(receipt),
        // What another operation completes has no other answer of its own.
        Some(Outcome::Issued { receipt }) => {
            let here = [StateTag::Issued, StateTag::Stranded, StateTag::Done].contains(&row.state);
            here && receipt.as_ref().is_none_or(|receipt| row.receipt.as_ref() == Some(receipt))
        }
        Some(Outcome::NoEffect { .. }) => row.state == StateTag::NoEffect,
        _ => false,
    }
}

/// The element of the settle lookup's stored answer that is this effect.
async fn found_object(
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    operation: &Operation,
) -> Result<Option<Vec<u8>>, AttemptError> {
    let (Some(rule), Some(receipt)) = (&operation.settle, &row.receipt) else { return Ok(None) };
    let history = book.effects.history(key).await.map_err(EffectsError::from)?;
    let evidence = history.iter().rev().find_map(|record| match &record.event {
        Event::Settled { verdict: SettleVerdict::One { .. }, evidence, .. } => Some(evidence),
        _ => None,
    });
    let Some(evidence) = evidence else { return Ok(None) };
    let raw = match book.effects.ledger.load(evidence).await {
        Ok(raw) => raw,
        Err(error) if withheld(row, &error) => return Ok(None),
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    let Ok(answer) = http::parse("GET", &raw, true).await else { return Ok(None) };
    Ok(candidate(rule, &answer, receipt).map(|object| object.to_string().into_bytes()))
}

fn candidate(rule: &Settle, answer: &Answer, receipt: &str) -> Option<serde_json::Value> {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let is_it = |object: &serde_json::Value| match rule.receipt.get(object) {
        Some(serde_json::Value::String(text)) => text == receipt,
        Some(serde_json::Value::Number(number)) => number.to_string() == receipt,
        _ => false,
    };
    match &rule.each {
        Some(each) => each.get(&body)?.as_array()?.iter().find(|object| is_it(object)).cloned(),
        None => Some(body).filter(is_it),
    }
}
