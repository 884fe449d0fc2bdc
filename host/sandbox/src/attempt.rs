//! Steps e to h: one attempt to send, in a task that nothing drops.
//!
//! Between the commit of `dispatched` and the commit of `responded` nothing is awaited but the
//! exchange itself and the ledger; no caller's deadline and no cancelled future reaches in here.

use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::{Contract, EffectKey, Field, Operation, Request, Role, Source, Verdict};
use oncegate_ledger::LedgerError;
use oncegate_ledger::state::{Effect, ResendTerms, StateTag, may_resend};
use oncegate_ledger::{Append, Dispatch, Effects, EffectsError, Ended, Event, Expect, Outcome, StreamKind};
use rand::Rng;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::credential::Credential;
use crate::host::{Book, Host, stream};
use crate::http::{self, End, Exchange, NotSent, Witness};
use crate::lookup;
use crate::perform::{Wanted, ledger_stop};
use crate::policy::Grant;
use crate::settle;
use crate::stop::Stop;

/// Tries to store an answer that has come while the ledger refuses, some ten minutes: the bytes are in
/// memory only, and a disk that is full is given time.
const RECORD_TRIES: u32 = 600;
/// Pause between them, growing up to a second.
const RECORD_PAUSE: Duration = Duration::from_millis(50);
/// Kept back from a provider's dedupe window: clocks differ, and a send takes time.
const RESEND_MARGIN: Duration = Duration::from_secs(120);
/// Records read at once, and how often, when the latest stamp is looked for.
const STAMP_PAGE: usize = 500;
const STAMP_PAGES_MAX: usize = 400;
/// How far this host's clock may be behind.
const CLOCK_ERROR: Duration = Duration::from_secs(5);

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

/// Everything that one attempt needs, so that it can go on by itself.
pub(crate) struct Draft {
    key: [u8; 32],
    version: u64,
    dispatch: Dispatch,
    also: Vec<Append>,
    request: Request,
    secret: Option<Credential>,
    allow_private: bool,
    /// Step f happens until then.
    send_until: Instant,
}

/// Steps a to d have been taken: renders the request and writes the intent down.
pub(crate) async fn draft(
    wanted: &Wanted<'_>,
    grant: &Grant,
    row: Option<&Effect>,
    also: &mut Vec<Append>,
) -> Result<Draft, Stop> {
    let host = &wanted.call.host;
    let operation = wanted.operation;
    let generation = row.map_or(0, Effect::next_generation);
    let downstream_key = oncegate_contract::downstream_key(&wanted.key, generation);
    let request = oncegate_contract::render(operation, &grant.url, &wanted.resolved, Some(&downstream_key))
        .map_err(crate::call::field_stop)?;
    let secret = lookup::secret(grant).await?;
    let contract = wanted.call.contract();
    contract_seen(wanted.book, contract, also).await?;
    // Only what tells which effect this is; a lookup that many effects share finds none of them.
    let naming: Vec<&str> = operation.fields.iter().filter_map(key_lookup).collect();
    for fetch in wanted.fetches.iter().filter(|fetch| naming.contains(&fetch.fetched.operation.as_str())) {
        lookup_resolved(wanted.book, fetch.digest, &wanted.key, also).await?;
    }
    let salt: [u8; 16] = rand::rng().random();
    let stored_request = encode(&request);
    let dispatch = Dispatch {
        attempt: rand::rng().random(),
        host: wanted.book.me.id(),
        at: (host.now)(),
        generation,
        epoch: wanted.epoch,
        tenant: wanted.call.tenant().to_owned(),
        account: wanted.account.clone(),
        owner: contract.component.name.clone(),
        action: operation.action.clone().unwrap_or_default(),
        operation: operation.name.clone(),
        tool: wanted.call.tool.clone(),
        component: wanted.call.component.description.digest,
        contract: contract.digest(),
        recipe: wanted.recipe,
        label: oncegate_contract::label(operation, &wanted.resolved),
        salt,
        fingerprint: oncegate_contract::fingerprint(&wanted.resolved, salt).fields,
        generated: oncegate_contract::generated_digest(&wanted.resolved),
        fields: encode(&wanted.resolved).into(),
        request_digest: Sha256::digest(&stored_request).into(),
        request: stored_request.into(),
        downstream_key,
        url: grant.url.clone(),
        credential: version(host, secret.as_ref(), grant),
        lookups: wanted
            .fetches
            .iter()
            .map(|fetch| (fetch.fetched.operation.clone(), fetch.digest, fetch.raw.clone().into()))
            .collect(),
        send_within_ms: u64::try_from(host.policy.limits.send_within.as_millis()).unwrap_or(u64::MAX),
        resend: false,
        irreversible: operation.irreversible(),
        provider_dedupes: operation.provider.dedupe == oncegate_contract::Dedupe::KeyAndBody,
        egress_direct: grant.egress_direct,
    };
    Ok(Draft {
        key: wanted.key.0,
        version: row.map_or(0, |row| row.version),
        dispatch,
        also: std::mem::take(also),
        request,
        secret,
        allow_private: grant.allow_private,
        send_until: Instant::now() + host.policy.limits.send_within,
    })
}

/// The lookup that a key part comes from.
fn key_lookup(field: &Field) -> Option<&str> {
    match &field.source {
        Source::Lookup { operation, .. } if field.role == Role::Key => Some(operation),
        _ => None,
    }
}

fn version(host: &Host, secret: Option<&Credential>, grant: &Grant) -> Option<(String, [u8; 8])> {
    let name = grant.credential.as_ref()?.name.clone();
    Some((name, host.cache.version_of(secret?.bytes())))
}

/// The stored request again, where rule 5 allows it.
pub(crate) async fn draft_resend(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    operation: &Operation,
    grant: &Grant,
    row: &Effect,
) -> Result<Draft, String> {
    let first = row.dispatch.as_deref().ok_or("nothing was sent yet")?;
    let stored = book.effects.ledger.load(&first.request).await.map_err(|error| error.to_string())?;
    let request: Request = decode(&stored).map_err(|error| error.to_string())?;
    let secret = lookup::secret(grant).await.map_err(|stop| stop.to_string())?;
    let credential = version(host, secret.as_ref(), grant);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // The statement that was sent under, and today's: the smaller window counts.
    let contract = host.contract(book, first.contract).await.map_err(|error| error.to_string())?;
    let then = contract.operations.get(&first.operation).and_then(|operation| operation.provider.window);
    let terms = ResendTerms {
        window_ms: operation.provider.window.min(then).map(millis),
        margin_ms: millis(RESEND_MARGIN + host.policy.limits.request_deadline),
        latest_clock_ms: (host.now)().saturating_add(millis(CLOCK_ERROR)),
        same_request: <[u8; 32]>::from(Sha256::digest(&stored)) == first.request_digest,
        same_credential: credential == first.credential,
        same_url: grant.url == first.url,
    };
    may_resend(row, &terms)?;
    let latest = latest_stamp(book, key).await?;
    if latest > terms.latest_clock_ms {
        return Err("this host's clock is behind the ledger's stamps, so no window can be told".to_owned());
    }
    let dispatch =
        Dispatch { attempt: rand::rng().random(), host: book.me.id(), at: (host.now)(), resend: true, ..first.clone() };
    Ok(Draft {
        key,
        version: row.version,
        dispatch,
        also: Vec::new(),
        request,
        secret,
        allow_private: grant.allow_private,
        send_until: Instant::now() + host.policy.limits.send_within,
    })
}

/// The highest stamp in the ledger since the effect was first dispatched. A clock that was set back
/// since then shows here, and one that was ahead at the dispatch shows in the row's own stamps.
async fn latest_stamp(book: &Book, key: [u8; 32]) -> Result<u64, String> {
    let failed = |error: LedgerError| error.to_string();
    let mut from = book.effects.history(key).await.map_err(failed)?.first().map_or(0, |record| record.seq);
    let mut latest = 0;
    for _ in 0..STAMP_PAGES_MAX {
        let page = book.effects.ledger.scan(from, STAMP_PAGE).await.map_err(failed)?;
        let Some(last) = page.last() else { return Ok(latest) };
        from = last.seq + 1;
        latest = page.iter().filter_map(|record| record.event.at()).fold(latest, u64::max);
    }
    Err("too much has happened since to tell what time it is".to_owned())
}

/// Keeps the contract that this row will be judged by.
async fn contract_seen(book: &Book, contract: &Contract, also: &mut Vec<Append>) -> Result<(), Stop> {
    let digest = contract.digest();
    let id = oncegate_ledger::StreamId { kind: StreamKind::Contract, id: digest };
    if read(book, id).await?.is_empty() {
        also.push(Append::new(id, Expect::Version(0), Event::ContractSeen { text: contract.text.clone(), digest }));
    }
    Ok(())
}

/// Lets a later call that made the same lookup find this effect (rule 13).
async fn lookup_resolved(book: &Book, lookup: [u8; 32], key: &EffectKey, also: &mut Vec<Append>) -> Result<(), Stop> {
    let id = oncegate_ledger::StreamId { kind: StreamKind::Lookup, id: lookup };
    let event = Event::LookupResolved { effect: key.0 };
    if !read(book, id).await?.iter().any(|record| record.event == event) {
        also.push(Append::new(id, Expect::Any, event));
    }
    Ok(())
}

async fn read(book: &Book, id: oncegate_ledger::StreamId) -> Result<Vec<oncegate_ledger::Record>, Stop> {
    book.effects.ledger.read(id).await.map_err(|error| ledger_stop(error.into()))
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
    let sent = send(&host, book, &draft).await;
    let effect = record(&host, book, &draft, sent).await?;
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

async fn send(host: &Host, book: &Book, draft: &Draft) -> Result<Exchange, NotSent> {
    let headers = match &draft.secret {
        Some(secret) => vec![secret.header().map_err(|error| NotSent::Stopped(error.to_string()))?],
        None => Vec::new(),
    };
    let mut keeper = Keeper { host, book, draft };
    let patience = lookup::patience(&host.policy.limits);
    http::exchange(&draft.request, &headers, draft.allow_private, patience, &mut keeper).await
}

/// Looks at the fence before the first byte, and stores evidence as it arrives.
struct Keeper<'a> {
    host: &'a Host,
    book: &'a Book,
    draft: &'a Draft,
}

#[async_trait::async_trait]
impl Witness for Keeper<'_> {
    async fn before_first_byte(&mut self) -> Result<(), String> {
        let fenced = self.book.effects.ledger.read(stream(StreamKind::Host, &[&self.draft.dispatch.host])).await;
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
        Ok(exchange) => responded(book, draft, exchange, at).await?,
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
async fn responded(book: &Book, draft: &Draft, exchange: Exchange, at: u64) -> Result<Event, AttemptError> {
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
        echoes: draft.secret.as_ref().is_some_and(|secret| secret.is_in(&exchange.raw)),
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

/// The open attempt's sender is gone: what it did is not known.
pub(crate) async fn lost(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    sender_stopped: bool,
) -> Result<(), AttemptError> {
    let Some(attempt) = row.open_attempt() else { return Ok(()) };
    let why =
        if sender_stopped { "the sender stopped before it stored an answer" } else { "the sender cannot be asked" };
    let event = Event::Lost { attempt: attempt.id, at: (host.now)(), why: why.to_owned(), sender_stopped };
    advance_or_race(book, key, row, event).await
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
        let event = match judge(host, book, key, &row, attempt, secret).await? {
            Ok(outcome) => Event::Classified { attempt, at, outcome },
            Err(why) => Event::ClassifyFailed { attempt, at, why },
        };
        match book.effects.advance(key, Some(&row), event, Vec::new()).await {
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
        Err(error @ (LedgerError::Damaged { .. } | LedgerError::Gone { .. })) => return Ok(Err(error.to_string())),
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    let complete = answered(book, key, attempt).await?.is_some_and(|answered| answered.complete);
    let judged = tokio::spawn(async move {
        match http::parse(&operation.method, &raw, complete).await {
            Ok(answer) => oncegate_contract::classify(&operation, &answer),
            Err(error) => Verdict::Unknown { why: error.to_string() },
        }
    });
    Ok(judged
        .await
        .map_or_else(|_| Err("judging the answer panicked".to_owned()), |verdict| Ok(hidden(verdict, secret))))
}

/// What gives the secret away is kept as a digest: a blank makes any text one that is not shown.
fn hidden(verdict: Verdict, secret: Option<&Credential>) -> Outcome {
    let hide = |text: String| match secret {
        Some(secret) if secret.is_in(text.as_bytes()) => oncegate_contract::safe_text(&format!("{text} ")),
        _ => text,
    };
    match verdict {
        Verdict::Done { receipt } => Outcome::Done { receipt: hide(receipt) },
        Verdict::Issued { receipt } => Outcome::Issued { receipt: receipt.map(hide) },
        Verdict::NoEffect { reason } => Outcome::NoEffect { reason: hide(reason) },
        Verdict::Unknown { why } => Outcome::Unknown { why },
    }
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
) -> Result<(), AttemptError> {
    match book.effects.advance(key, Some(row), event, Vec::new()).await {
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
