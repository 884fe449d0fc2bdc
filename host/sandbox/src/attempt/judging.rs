//! What an answer's bytes come to, by the contract they were asked under.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use oncegate_contract::{Answer, Operation, Verdict};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{EffectsError, Ended, Event, LedgerError, Outcome};

use super::AttemptError;
use crate::credential::Credential;
use crate::host::{Book, Host};
use crate::http;

/// What an answer was judged to be.
pub(super) struct Judged {
    pub(super) outcome: Outcome,
    /// As it was read; none where it is no HTTP answer.
    pub(super) answer: Option<Answer>,
}

/// Judges the stored answer of an attempt. The inner error says why that failed.
pub(super) async fn judge(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    attempt: [u8; 16],
    secret: Option<&Credential>,
) -> Result<Result<Outcome, String>, AttemptError> {
    let Some(dispatch) = row.dispatch.as_deref() else { return Ok(Err("the row has no dispatch".to_owned())) };
    let contract = host.contract(book, dispatch.contract).await?;
    let Some(operation) = contract.operations.get(&dispatch.operation) else {
        return Ok(Err("the contract has no such operation".to_owned()));
    };
    let (raw, answered) = match stored(book, key, attempt).await {
        Ok(stored) => stored,
        // Bytes that cannot be had again say nothing; the row goes on as unknown.
        Err(error) if is_lost(&error) => return Ok(Err(error.to_string())),
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    let complete = answered.as_ref().is_some_and(|answered| answered.complete);
    let echoes = answered.is_some_and(|answered| answered.echoes);
    // Whoever judges an answer later than its sender reads the secret again, for those that hold it.
    let again = if echoes && secret.is_none() { host.secret_of(Some(dispatch)).await } else { None };
    let judged = judge_bytes(host, operation, &raw, complete, echoes, secret.or(again.as_ref())).await;
    Ok(judged.map(|judged| judged.outcome))
}

/// Judges bytes that are durable, and are all of an answer that came so.
///
/// # Errors
/// It panicked: an answer like any other, which is tried once more.
pub(super) async fn judge_bytes(
    host: &Host,
    operation: &Operation,
    raw: &[u8],
    complete: bool,
    echoes: bool,
    secret: Option<&Credential>,
) -> Result<Judged, String> {
    let judging = async {
        match http::parse(&operation.method, raw, complete).await {
            Ok(answer) => (oncegate_contract::classify(operation, &answer), Some(answer)),
            Err(error) => (Verdict::Unknown { why: error.to_string() }, None),
        }
    };
    let (verdict, answer) = unless_it_panics(judging).await.ok_or("judging the answer panicked")?;
    if let Some(answer) = &answer {
        host.saw_date(answer);
    }
    Ok(Judged { outcome: hidden(verdict, secret, echoes), answer })
}

/// None where the work panics: it holds nothing that anybody looks at afterwards.
async fn unless_it_panics<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// What gives the secret away is kept as a digest: a blank makes any text one that is not shown. Where the
/// answer holds the secret and nobody knows it any more, that is all that it says.
fn hidden(verdict: Verdict, secret: Option<&Credential>, echoes: bool) -> Outcome {
    let digest = |text: String| oncegate_contract::safe_text(&format!("{text} "));
    let hide = |text: String| match secret {
        Some(secret) if secret.is_in(text.as_bytes()) => digest(text),
        None if echoes => digest(text),
        _ => text,
    };
    match verdict {
        Verdict::Done { receipt } => Outcome::Done { receipt: hide(receipt) },
        Verdict::Issued { receipt } => Outcome::Issued { receipt: receipt.map(hide) },
        Verdict::NoEffect { reason } => Outcome::NoEffect { reason: hide(reason) },
        Verdict::Unknown { why } => Outcome::Unknown { why },
    }
}

/// Whether bytes can never be had again; those under a key that is not here may be.
pub(crate) fn is_lost(error: &LedgerError) -> bool {
    let for_good = error.withholds_bytes() && !matches!(error, LedgerError::Locked { .. });
    for_good || matches!(error, LedgerError::Damaged { .. })
}

/// How an attempt's answer came.
pub(crate) struct Answered {
    /// It is whole.
    pub(crate) complete: bool,
    /// It gives away the credential it was asked with.
    pub(crate) echoes: bool,
}

/// The bytes of an attempt's answer, and how they came; of an attempt that has not ended, what there is of it.
pub(crate) async fn stored(
    book: &Book,
    key: [u8; 32],
    attempt: [u8; 16],
) -> Result<(Vec<u8>, Option<Answered>), LedgerError> {
    let history = book.effects.history(key).await?;
    let raw = book.effects.raw_answer_in(&history, attempt).await?;
    let answered = history.iter().find_map(|record| match &record.event {
        Event::Responded { attempt: id, ended, echoes, .. } if *id == attempt => {
            Some(Answered { complete: *ended == Ended::Complete, echoes: *echoes })
        }
        _ => None,
    });
    Ok((raw, answered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_like_any_other() {
        let work = async {
            tokio::task::yield_now().await;
            panic!("in the middle of it")
        };
        assert_eq!(unless_it_panics::<()>(work).await, None);
        assert_eq!(unless_it_panics(async { 1 }).await, Some(1));
    }
}
