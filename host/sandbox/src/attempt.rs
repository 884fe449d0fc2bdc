//! Steps e to h: one attempt to send, in a task that nothing drops.
//!
//! Between the commit of `dispatched` and the commit of `responded` nothing is awaited but the
//! exchange itself and the ledger; no caller's deadline and no cancelled future reaches in here.

mod draft;
pub(crate) mod evidence;
mod judging;
mod own;

use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::{Answer, Request};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Dispatch, Effects, EffectsError, Ended, Event, LedgerError, StreamId};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::Instrument;

use crate::credential::Credential;
use crate::echo::Watch;
use crate::egress::Route;
use crate::host::{Book, Host};
use crate::http::{self, End, Exchange, NotSent, Witness};
use crate::lookup;
use crate::meter::{self, ProviderEnd, spans};
use crate::settle;

pub(crate) use draft::{
    Draft, again, contract_seen, downstream_key, fresh, known_time, propose, recorded, within_limit,
};
use judging::judge;
pub(crate) use judging::{is_lost, stored};

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

/// What an attempt came to.
pub(crate) struct Ran {
    /// The row as it then is.
    pub(crate) effect: Effect,
    /// The answer that it rests on, where its sender read it and may give it to the guest as it is.
    pub(crate) answer: Option<Answer>,
}

/// The attempt that is being sent.
struct Sending {
    key: [u8; 32],
    attempt: [u8; 16],
    host: [u8; 16],
    request: Request,
    secret: Option<Credential>,
    route: Route,
    send_until: Instant,
}

/// Steps e to h; gives what came of it, or nothing when another caller was first. Spawn it; do not await it inside
/// something that can be dropped.
pub(crate) async fn run(host: Arc<Host>, draft: Draft) -> Result<Option<Ran>, AttemptError> {
    let Ok(book) = host.book() else { return Ok(None) };
    let Draft { key, row, dispatch, also, request, secret, route, send_until } = draft;
    let Dispatch { attempt, host: me, component, .. } = dispatch;
    let running = host.mark_running(attempt);
    let _counted = host.meter.attempt();
    // The row was read before the gates were asked: the commit is made on it as it was then, or not at all.
    let event = Event::Dispatched(Box::new(dispatch));
    let row = match book.effects.advance(key, row.as_ref(), event, also).await {
        Ok(row) => row,
        Err(error) if error.is_conflict() => return Ok(None),
        Err(error) => return Err(AttemptError::BeforeSending(error)),
    };
    let sending = Sending { key, attempt, host: me, request, secret, route, send_until };
    let (effect, told) = sending.send_and_record(&host, book, row).await?;
    drop(running);
    let ran = sending.judge(&host, book, effect, told).await?;
    if ran.effect.frozen {
        host.meter.saw_frozen(key);
    }
    if settle::wants_confirmation(&ran.effect) {
        host.tasks.spawn(settle::confirm(Arc::clone(&host), key, component));
    }
    Ok(Some(ran))
}

impl Sending {
    /// Steps f and g.
    async fn send_and_record(
        &self,
        host: &Host,
        book: &Book,
        row: Effect,
    ) -> Result<(Effect, Option<own::Told>), AttemptError> {
        let mut keeper = Keeper { host, book, sending: self, row, echo: None, sends_since: None };
        let sent = self.measured(&mut keeper).await;
        let Keeper { row, echo, .. } = keeper;
        record(host, book, self, row, sent, echo).await
    }

    /// As [`Sending::send`], which is counted.
    async fn measured(&self, keeper: &mut Keeper<'_>) -> Result<Exchange, NotSent> {
        let meter = Arc::clone(&keeper.host.meter);
        let operation = keeper.row.dispatch.as_ref().map(|dispatch| dispatch.operation.clone()).unwrap_or_default();
        let span = spans::send(&operation, Some(&self.request.method), &self.request.url);
        let sent = self.send(keeper).instrument(span.clone()).await;
        let end = sent.as_ref().map_or(ProviderEnd::NotSent, ProviderEnd::of);
        let took = keeper.sends_since.filter(|_| end != ProviderEnd::NotSent).map(|since| since.elapsed());
        spans::sent(&span, end, sent.as_ref().ok().and_then(Exchange::status));
        meter.provider(meter::Asked::Effect, &operation, end, took);
        sent
    }

    async fn send(&self, keeper: &mut Keeper<'_>) -> Result<Exchange, NotSent> {
        let header = self.secret.as_ref().map(Credential::header).transpose();
        let headers: Vec<_> = header.map_err(|error| NotSent::Stopped(error.to_string()))?.into_iter().collect();
        let patience = lookup::patience(&keeper.host.policy.limits);
        http::exchange(&self.request, &headers, &self.route, patience, keeper).await
    }

    /// Step h.
    async fn judge(
        &self,
        host: &Arc<Host>,
        book: &Book,
        effect: Effect,
        told: Option<own::Told>,
    ) -> Result<Ran, AttemptError> {
        if effect.state != StateTag::Responded {
            return Ok(Ran { effect, answer: None });
        }
        match told {
            Some(told) => own::classify(host, book, self, effect, told).await,
            None => {
                let effect = classify(host, book, self.key, effect, self.secret.as_ref()).await?;
                Ok(Ran { effect, answer: None })
            }
        }
    }
}

/// Looks at the fence before the first byte, and stores evidence as it arrives.
struct Keeper<'a> {
    host: &'a Host,
    book: &'a Book,
    sending: &'a Sending,
    /// The row as this attempt left it last.
    row: Effect,
    /// Looks for the credential in what arrives in pieces.
    echo: Option<Watch>,
    /// When the first byte could leave.
    sends_since: Option<Instant>,
}

impl Keeper<'_> {
    /// Whether nobody has fenced this host, revoked the effect or taken it over since the row was stored.
    async fn is_still_ours(&self) -> Result<bool, LedgerError> {
        let effects = &self.book.effects;
        let (fence, effect) = (StreamId::host(self.sending.host), StreamId::effect(self.sending.key));
        // Where both streams end as they did, there is nothing more to read.
        if let [None, Some(tip)] = effects.tips(&[fence, effect]).await?[..]
            && tip.version == self.row.version
        {
            return Ok(true);
        }
        let fenced = effects.ledger.read(fence).await?;
        if fenced.iter().any(|record| matches!(record.event, Event::HostFenced { .. })) {
            return Ok(false);
        }
        let row = effects.get(self.sending.key).await?;
        let ours =
            |row: &Effect| row.attempts.last().is_some_and(|last| last.id == self.sending.attempt && last.is_open());
        Ok(row.is_some_and(|row| ours(&row) && !row.revoke_wished && !row.frozen))
    }
}

#[async_trait::async_trait]
impl Witness for Keeper<'_> {
    async fn before_first_byte(&mut self) -> Result<(), String> {
        self.book.effects.ledger.marked().await.map_err(|error| error.to_string())?;
        if !self.is_still_ours().await.map_err(|error| error.to_string())? {
            return Err("this host was fenced, or the effect revoked, or it is no longer this attempt's".to_owned());
        }
        // Last, since everything above takes time.
        if Instant::now() >= self.sending.send_until {
            return Err("too long after the dispatch was committed".to_owned());
        }
        self.sends_since = Some(Instant::now());
        Ok(())
    }

    async fn received(&mut self, offset: u64, bytes: &[u8]) {
        if self.echo.is_none() {
            self.echo = self.sending.secret.as_ref().map(|secret| Watch::of(secret.bytes()));
        }
        let event = Event::Evidence {
            attempt: self.sending.attempt,
            offset,
            bytes: bytes.to_vec().into(),
            at: (self.host.now)(),
            // Before it is stored: what gives the credential away is never on disk in clear.
            echoes: self.echo.as_mut().is_some_and(|echo| echo.piece(bytes)),
        };
        match push_onto(&self.book.effects, self.sending.key, Some(&self.row), event).await {
            Ok(row) => self.row = row,
            Err(error) => tracing::error!(%error, offset, "evidence is only in memory"),
        }
    }
}

/// Step g, for every way an exchange can end.
async fn record(
    host: &Host,
    book: &Book,
    sending: &Sending,
    row: Effect,
    sent: Result<Exchange, NotSent>,
    echo: Option<Watch>,
) -> Result<(Effect, Option<own::Told>), AttemptError> {
    let attempt = sending.attempt;
    let at = (host.now)();
    let (event, told) = match sent {
        Err(why) => {
            tracing::warn!(label = row.label(), error = %why, "nothing was sent");
            (Event::NotSent { attempt, at, why: why.to_string() }, None)
        }
        Ok(exchange) if exchange.sent_bytes == 0 && exchange.raw.is_empty() => {
            (Event::NotSent { attempt, at, why: exchange.error.unwrap_or_default() }, None)
        }
        Ok(exchange) if exchange.raw.is_empty() => {
            let why = exchange.error.unwrap_or_else(|| "no answer came".to_owned());
            (Event::Lost { attempt, at, why, sender_stopped: true }, None)
        }
        Ok(exchange) => {
            let (event, told) = responded(book, sending, exchange, at, echo).await;
            (event, Some(told))
        }
    };
    for pause in 0..RECORD_TRIES {
        match push_onto(&book.effects, sending.key, Some(&row), event.clone()).await {
            Ok(effect) => return Ok((effect, told)),
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
    sending: &Sending,
    exchange: Exchange,
    at: u64,
    echo: Option<Watch>,
) -> (Event, own::Told) {
    let attempt = sending.attempt;
    // What the ledger has counts, not what was handed to it; where it cannot say, everything is stored.
    let stored = match exchange.witnessed {
        0 => 0,
        _ => evidence_bytes(book, sending.key, attempt).await.unwrap_or(0).min(exchange.raw.len()),
    };
    let echo = echo.or_else(|| sending.secret.as_ref().map(|secret| Watch::of(secret.bytes())));
    let echoes = echo.is_some_and(|mut echo| echo.ends(&exchange.raw[stored..]))
        || stored == 0 && sending.secret.as_ref().is_some_and(|secret| secret.is_in_answer(&exchange.raw));
    let event = Event::Responded {
        attempt,
        at,
        head_and_tail: exchange.raw[stored..].to_vec().into(),
        total: exchange.raw.len() as u64,
        digest: Sha256::digest(&exchange.raw).into(),
        sent_bytes: exchange.sent_bytes,
        echoes,
        ended: match exchange.end {
            End::Complete => Ended::Complete,
            End::Truncated => Ended::Truncated,
            End::TimedOut => Ended::TimedOut,
            End::Broken => Ended::Failed,
            End::TooLarge => Ended::TooLarge,
        },
    };
    (event, own::Told { complete: exchange.end == End::Complete, raw: exchange.raw, echoes })
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
    push_onto(effects, key, None, event).await
}

/// The same, tried first on the row as it was last known.
async fn push_onto(
    effects: &Effects,
    key: [u8; 32],
    known: Option<&Effect>,
    event: Event,
) -> Result<Effect, EffectsError> {
    /// Others that may come first; each of them has appended something new.
    const TRIES: usize = 64;
    let mut last = None;
    for again in 0..TRIES {
        let read = if again > 0 || known.is_none() { effects.get(key).await? } else { None };
        match effects.advance(key, read.as_ref().or(known), event.clone(), Vec::new()).await {
            Err(error) if error.is_conflict() => last = Some(error),
            // It was stored, and nobody was told: what the row says counts.
            Err(error @ EffectsError::Illegal(_)) if read.is_none() => last = Some(error),
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

/// Step h: judges the stored bytes by the contract they were asked under. What others left unjudged before they
/// stopped is judged first: whom a receipt belongs to must not depend on who looks.
pub(crate) async fn classify(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: Effect,
    secret: Option<&Credential>,
) -> Result<Effect, AttemptError> {
    settle::judge_leftovers(host, book, key).await?;
    classify_alone(host, book, key, row, secret).await
}

/// The same of this row alone.
pub(crate) async fn classify_alone(
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
