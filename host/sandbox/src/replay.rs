//! The stored answer of a settled effect, as the guest of a later call is given it.

use oncegate_contract::{Answer, Operation, Settle};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{EffectsError, Event, Outcome, SettleVerdict};

use crate::attempt::{AttemptError, ended_complete};
use crate::host::{Book, Host};
use crate::http;

/// The answer that decided the row, without the secret it was asked with; for a row that a lookup
/// settled, the object that was found.
pub(crate) async fn answer(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    operation: &Operation,
) -> Result<Answer, AttemptError> {
    let mut answer = stored(book, key, row, operation).await?;
    if let Some(secret) = host.secret_of(row.dispatch.as_deref()).await {
        secret.scrub(&mut answer);
    }
    Ok(answer)
}

async fn stored(book: &Book, key: [u8; 32], row: &Effect, operation: &Operation) -> Result<Answer, AttemptError> {
    let decided = row
        .attempts
        .iter()
        .rev()
        .find(|attempt| matches!(attempt.outcome, Some(Outcome::Done { .. } | Outcome::NoEffect { .. })));
    if let Some(attempt) = decided {
        let raw = book.effects.raw_answer(key, attempt.id).await.map_err(EffectsError::from)?;
        let complete = ended_complete(book, key, attempt.id).await?;
        if let Ok(answer) = http::parse(&operation.method, &raw, complete).await {
            return Ok(answer);
        }
    }
    let body = found_object(book, key, row, operation).await?.unwrap_or_else(|| b"{}".to_vec());
    Ok(Answer { status: 200, headers: Vec::new(), body, complete: true })
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
    let raw = book.effects.ledger.load(evidence).await.map_err(EffectsError::from)?;
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
