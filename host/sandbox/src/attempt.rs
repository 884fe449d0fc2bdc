//! Steps e to h: one attempt to send, in a task that nothing drops.
//!
//! Between the commit of `dispatched` and the commit of `responded` nothing is awaited but the
//! exchange itself and the ledger; no caller's deadline and no cancelled future reaches in here.

mod draft;
pub(crate) mod evidence;

use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::Verdict;
use oncegate_ledger::LedgerError;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Effects, EffectsError, Ended, Event, Outcome, StreamId};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::credential::Credential;
use crate::echo::Watch;
use crate::host::{Book, Host};
use crate::http::{self, End, Exchange, NotSent, Witness};
use crate::lookup;
use crate::settle;

pub(crate) use draft::{
    Draft, again, contract_seen, downstream_key, fresh, known_time, propose, recorded, within_limit,
};

/// Tries to store an answer that has come while the ledger refuses, some ten minutes: the bytes are in
/// memory only, and a disk that is full is given time.
const RECORD_TRIES: u32 = 600;
/// Pause between them, growing up to a second.
const RECORD_PAUSE: Duration = Duration::from_millis(50);

/// Why an attempt could not be made or recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    /// The dispatch was not committed: nothing was sent.
    #[error("the dispatch could not be recorded: {0}")]
    BeforeSending(EffectsError),
    /// What came of it could not be recorded.
    #[error("what came of an attempt could not be recorded: {0}")]
    Recording(#[from] EffectsError),
    /// The ledger holds something that this program cannot read.
    #[error("the ledger holds {what} that cannot be read: {why}")]
    Unreadable {
        /// Which part of the row.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Steps e to h; gives the row as it then is, or nothing when another caller was first. Spawn it; do not await it inside something that can be dropped.
pub(crate) async fn run(host: Arc<Host>, mut draft: Draft) -> Result<Option<Effect>, AttemptError> {
    let Ok(book) = host.book() else { return Ok(None) };
    let running = host.mark_running(draft.dispatch.attempt);
    let event = Event::Dispatched(Box::new(draft.dispatch.clone()));
    match book.effects.append(draft.key, draft.version, event, std::mem::take(&mut draft.also)).await {
        Ok(_) => {}
        Err(error) if error.is_conflict() => return Ok(None),
        Err(error) => return Err(AttemptError::BeforeSending(error)),
    }
    let (sent, echo) = send(&host, book, &draft).await;
    let effect = record(&host, book, &draft, sent, echo).await?;
    drop(running);
    let effect = if effect.state == StateTag::Responded {
        classify(&host, book, draft.key, effect, draft.secret.as_ref()).await?
    } else {
        effect
    };
    if settle::wants_confirmation(&effect) {
        host.tasks.spawn(settle::confirm(Arc::clone(&host), draft.key, draft.dispatch.component));
    }
    Ok(Some(effect))
}

/// What came of sending, and what the evidence so far showed of the credential.
async fn send(host: &Host, book: &Book, draft: &Draft) -> (Result<Exchange, NotSent>, Option<Watch>) {
    let headers = match draft.secret.as_ref().map(Credential::header).transpose() {
        Ok(header) => header.into_iter().collect::<Vec<_>>(),
        Err(error) => return (Err(NotSent::Stopped(error.to_string())), None),
    };
    let echo = draft.secret.as_ref().map(|secret| Watch::of(secret.bytes()));
    let mut keeper = Keeper { host, book, draft, echo };
    let patience = lookup::patience(&host.policy.limits);
    let sent = http::exchange(&draft.request, &headers, &draft.route, patience, &mut keeper).await;
    (sent, keeper.echo)
}

/// Looks at the fence before the first byte, and stores evidence as it arrives.
struct Keeper<'a> {
    host: &'a Host,
    book: &'a Book,
    draft: &'a Draft,
    /// Looks for the credential in what arrives.
    echo: Option<Watch>,
}

#[async_trait::async_trait]
impl Witness for Keeper<'_> {
    async fn before_first_byte(&mut self) -> Result<(), String> {
        self.book.effects.ledger.marked().await.map_err(|error| error.to_string())?;
        let fenced = self.book.effects.ledger.read(StreamId::host(self.draft.dispatch.host)).await;
        let fenced = fenced.map_err(|error| error.to_string())?;
        if fenced.iter().any(|record| matches!(record.event, Event::HostFenced { .. })) {
            return Err("this host was fenced".to_owned());
        }
        let row = self.book.effects.get(self.draft.key).await.map_err(|error| error.to_string())?;
        let ours = |row: &Effect| {
            row.attempts.last().is_some_and(|last| last.id == self.draft.dispatch.attempt && last.is_open())
        };
        if !row.as_ref().is_some_and(|row| ours(row) && !row.revoke_wished && !row.frozen) {
            return Err("the effect was revoked or is no longer this attempt's".to_owned());
        }
        // Last, since everything above takes time.
        if Instant::now() >= self.draft.send_until {
            return Err("too long after the dispatch was committed".to_owned());
        }
        Ok(())
    }

    async fn received(&mut self, offset: u64, bytes: &[u8]) {
        let event = Event::Evidence {
            attempt: self.draft.dispatch.attempt,
            offset,
            bytes: bytes.to_vec().into(),
            at: (self.host.now)(),
            // Before it is stored: what gives the credential away is never on disk in clear.
            echoes: self.echo.as_mut().is_some_and(|echo| echo.piece(bytes)),
        };
        if let Err(error) = push(&self.book.effects, self.draft.key, event).await {
            tracing::error!(%error, offset, "evidence is only in memory");
        }
    }
}

/// Step g, for every way an exchange can end.
async fn record(
    host: &Host,
    book: &Book,
    draft: &Draft,
    sent: Result<Exchange, NotSent>,
    echo: Option<Watch>,
) -> Result<Effect, AttemptError> {
    let attempt = draft.dispatch.attempt;
    let at = (host.now)();
    let event = match sent {
        Err(why) => {
            tracing::warn!(label = %draft.dispatch.label, error = %why, "nothing was sent");
            Event::NotSent { attempt, at, why: why.to_string() }
        }
        Ok(exchange) if exchange.sent_bytes == 0 && exchange.raw.is_empty() => {
            Event::NotSent { attempt, at, why: exchange.error.unwrap_or_default() }
        }
        Ok(exchange) if exchange.raw.is_empty() => {
            let why = exchange.error.unwrap_or_else(|| "no answer came".to_owned());
            Event::Lost { attempt, at, why, sender_stopped: true }
        }
        Ok(exchange) => responded(book, draft, exchange, at, echo).await?,
    };
    for pause in 0..RECORD_TRIES {
        match push(&book.effects, draft.key, event.clone()).await {
            Ok(effect) => return Ok(effect),
            Err(error) if pause + 1 == RECORD_TRIES || matches!(error, EffectsError::Illegal(_)) => {
                return Err(error.into());
            }
            Err(error) => {
                tracing::error!(%error, "an answer is only in memory; storing it again");
                tokio::time::sleep((RECORD_PAUSE * (1 + pause)).min(Duration::from_secs(1))).await;
            }
        }
    }
    Err(AttemptError::Unreadable { what: "an attempt", why: "it was not recorded".to_owned() })
}

/// The whole answer, less what is stored as evidence already.
async fn responded(
    book: &Book,
    draft: &Draft,
    exchange: Exchange,
    at: u64,
    echo: Option<Watch>,
) -> Result<Event, AttemptError> {
    let attempt = draft.dispatch.attempt;
    // What the ledger has counts, not what was handed to it; where it cannot say, everything is stored.
    let stored = evidence_bytes(book, draft.key, attempt).await.unwrap_or(0).min(exchange.raw.len());
    Ok(Event::Responded {
        attempt,
        at,
        head_and_tail: exchange.raw[stored..].to_vec().into(),
        total: exchange.raw.len() as u64,
        digest: Sha256::digest(&exchange.raw).into(),
        sent_bytes: exchange.sent_bytes,
        echoes: echo.is_some_and(|mut echo| echo.ends(&exchange.raw[stored..]))
            || stored == 0 && draft.secret.as_ref().is_some_and(|secret| secret.is_in_answer(&exchange.raw)),
        ended: match exchange.end {
            End::Complete => Ended::Complete,
            End::Truncated => Ended::Truncated,
            End::TimedOut => Ended::TimedOut,
            End::Broken => Ended::Failed,
            End::TooLarge => Ended::TooLarge,
        },
    })
}

async fn evidence_bytes(book: &Book, key: [u8; 32], attempt: [u8; 16]) -> Result<usize, LedgerError> {
    let history = book.effects.history(key).await?;
    let mut end = 0;
    for record in &history {
        if let Event::Evidence { attempt: id, offset, bytes, .. } = &record.event
            && *id == attempt
        {
            end = end.max(offset + bytes.len());
        }
    }
    Ok(usize::try_from(end).unwrap_or(usize::MAX))
}

/// Appends at whatever version the row has: facts are true in any order.
pub(crate) async fn push(effects: &Effects, key: [u8; 32], event: Event) -> Result<Effect, EffectsError> {
    /// Others that may come first; each of them has appended something new.
    const TRIES: usize = 64;
    let mut last = None;
    for _ in 0..TRIES {
        let row = effects.get(key).await?;
        match effects.advance(key, row.as_ref(), event.clone(), Vec::new()).await {
            Err(error) if error.is_conflict() => last = Some(error),
            other => return other,
        }
    }
    Err(last.unwrap_or(EffectsError::Ledger(LedgerError::Unavailable { why: "too many writers".to_owned() })))
}

/// The open attempt's sender is gone: what it stored of an answer is the answer; without any, what it
/// did is not known.
pub(crate) async fn lost(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    sender_stopped: bool,
) -> Result<(), AttemptError> {
    let Some(attempt) = row.open_attempt() else { return Ok(()) };
    if sender_stopped && let Some(event) = evidence::as_answer(host, book, key, row, attempt.id).await? {
        return advance_or_race(book, key, row, event, Vec::new()).await;
    }
    let why =
        if sender_stopped { "the sender stopped before it stored an answer" } else { "the sender cannot be asked" };
    let event = Event::Lost { attempt: attempt.id, at: (host.now)(), why: why.to_owned(), sender_stopped };
    advance_or_race(book, key, row, event, Vec::new()).await
}

/// Step h: judges the stored bytes by the contract they were asked under.
pub(crate) async fn classify(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: Effect,
    secret: Option<&Credential>,
) -> Result<Effect, AttemptError> {
    let mut row = row;
    while let Some(attempt) = row.unclassified_attempt().map(|attempt| attempt.id) {
        let at = (host.now)();
        let (event, guards) = match judge(host, book, key, &row, attempt, secret).await? {
            Ok(outcome) => {
                let (outcome, guards) = settle::belonging(host, book, key, &row, outcome).await?;
                (Event::Classified { attempt, at, outcome }, guards)
            }
            Err(why) => (Event::ClassifyFailed { attempt, at, why }, Vec::new()),
        };
        match book.effects.advance(key, Some(&row), event, guards).await {
            Ok(next) => row = next,
            Err(error) if error.is_conflict() => {
                row = book.effects.get(key).await.map_err(EffectsError::from)?.unwrap_or(row);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(row)
}

/// Parses and judges in a task of its own, so that a panic in there is an answer like any other.
async fn judge(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    attempt: [u8; 16],
    secret: Option<&Credential>,
) -> Result<Result<Outcome, String>, AttemptError> {
    let Some(dispatch) = row.dispatch.as_deref() else { return Ok(Err("the row has no dispatch".to_owned())) };
    let contract = host.contract(book, dispatch.contract).await?;
    let Some(operation) = contract.operations.get(&dispatch.operation).cloned() else {
        return Ok(Err("the contract has no such operation".to_owned()));
    };
    let raw = match book.effects.raw_answer(key, attempt).await {
        Ok(raw) => raw,
        // Bytes that cannot be had again say nothing; the row goes on as unknown.
        Err(error) if is_lost(&error) => return Ok(Err(error.to_string())),
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    let answered = answered(book, key, attempt).await?;
    let complete = answered.as_ref().is_some_and(|answered| answered.complete);
    let echoes = answered.is_some_and(|answered| answered.echoes);
    let judged = tokio::spawn(async move {
        match http::parse(&operation.method, &raw, complete).await {
            Ok(answer) => (oncegate_contract::classify(&operation, &answer), Some(answer)),
            Err(error) => (Verdict::Unknown { why: error.to_string() }, None),
        }
    });
    let Ok((verdict, answer)) = judged.await else { return Ok(Err("judging the answer panicked".to_owned())) };
    if let Some(answer) = answer {
        host.saw_date(&answer);
    }
    // Whoever judges an answer later than its sender reads the secret again, for those that hold it.
    let again = if echoes && secret.is_none() { host.secret_of(Some(dispatch)).await } else { None };
    Ok(Ok(hidden(verdict, secret.or(again.as_ref()), echoes)))
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

pub(crate) async fn answered(book: &Book, key: [u8; 32], attempt: [u8; 16]) -> Result<Option<Answered>, AttemptError> {
    let history = book.effects.history(key).await.map_err(EffectsError::from)?;
    Ok(history.iter().find_map(|record| match &record.event {
        Event::Responded { attempt: id, ended, echoes, .. } if *id == attempt => {
            Some(Answered { complete: *ended == Ended::Complete, echoes: *echoes })
        }
        _ => None,
    }))
}

/// Appends at the row's version; when another was first, the caller looks again.
pub(crate) async fn advance_or_race(
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    event: Event,
    guards: Vec<Append>,
) -> Result<(), AttemptError> {
    match book.effects.advance(key, Some(row), event, guards).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_conflict() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Both are plain trees of text, numbers and lists; there is nothing in them that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, AttemptError> {
    serde_json::from_slice(bytes)
        .map_err(|error| AttemptError::Unreadable { what: "a stored request or its fields", why: error.to_string() })
}
