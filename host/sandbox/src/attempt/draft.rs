//! Writing an intent down: the request as it would be sent, and everything one attempt needs.

use std::time::Duration;

use oncegate_contract::{Contract, EffectKey, Field, Operation, Request, Role, Source};
use oncegate_ledger::state::{Effect, ResendTerms, may_resend};
use oncegate_ledger::{Append, Dispatch, Event, Expect, LedgerError, Proposal, StreamId, StreamKind, Ties};
use rand::Rng;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{decode, encode};
use crate::credential::Credential;
use crate::egress::Route;
use crate::host::{Book, CLOCK_ERROR_MS, Host};
use crate::limits::Limits;
use crate::lookup;
use crate::perform::{Passage, Wanted, ledger_stop};
use crate::policy::Grant;
use crate::stop::Stop;

/// Kept back from a provider's dedupe window: clocks differ, and a send takes time.
const RESEND_MARGIN: Duration = Duration::from_secs(120);
/// Records read at once, and how often, when the latest stamp is looked for.
const STAMP_PAGE: usize = 500;
const STAMP_PAGES_MAX: usize = 400;

/// Everything that one attempt needs, so that it can go on by itself.
pub(crate) struct Draft {
    pub(super) key: [u8; 32],
    /// As it was read before the gates were asked.
    pub(super) row: Option<Effect>,
    pub(super) dispatch: Dispatch,
    pub(super) also: Vec<Append>,
    pub(super) request: Request,
    pub(super) secret: Option<Credential>,
    pub(super) route: Route,
    /// Step f happens until then.
    pub(super) send_until: Instant,
}

impl Draft {
    /// Sends it within this time as well, or not at all.
    pub(crate) fn within(self, left: Option<Duration>) -> Self {
        let until = left.map_or(self.send_until, |left| self.send_until.min(Instant::now() + left));
        Self { send_until: until, ..self }
    }
}

/// Whether the rendered request is one that may be kept and sent.
pub(crate) fn within_limit(request: &Request, limits: &Limits) -> Result<(), Stop> {
    let headers: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let bytes = request.url.len() + headers + request.body.len();
    if bytes > limits.request_bytes_max { Err(Stop::Limit("request".to_owned())) } else { Ok(()) }
}

/// The row as it would be sent: rendered, and not yet anybody's attempt.
pub(crate) fn propose(
    wanted: &Wanted<'_>,
    grant: &Grant,
    row: Option<&Effect>,
    ties: Ties,
) -> Result<(Proposal, Request), Stop> {
    let operation = wanted.operation;
    let downstream_key = downstream_key(wanted, row);
    let request = oncegate_contract::render(operation, &grant.url, &wanted.resolved, Some(&downstream_key))
        .map_err(crate::call::field_stop)?;
    within_limit(&request, &wanted.call.limits)?;
    let contract = wanted.call.contract();
    let salt: [u8; 16] = rand::rng().random();
    let stored_request = encode(&request);
    let proposal = Proposal {
        at: (wanted.call.host.now)(),
        plan: None,
        epoch: wanted.epoch,
        tenant: wanted.call.tenant().to_owned(),
        account: wanted.account.clone(),
        owner: wanted.call.owner()?.owner,
        action: operation.action.clone().unwrap_or_default(),
        operation: operation.name.clone(),
        tool: wanted.call.tool.clone(),
        contract: contract.digest(),
        label: oncegate_contract::label(operation, &wanted.resolved),
        salt,
        fingerprint: oncegate_contract::fingerprint(&wanted.resolved, salt).fields,
        generated: oncegate_contract::generated_digest(&wanted.resolved),
        fields: encode(&wanted.resolved).into(),
        request_digest: Sha256::digest(&stored_request).into(),
        request: stored_request.into(),
        ties,
    };
    Ok((proposal, request))
}

/// What the provider is to know the effect by.
pub(crate) fn downstream_key(wanted: &Wanted<'_>, row: Option<&Effect>) -> String {
    oncegate_contract::downstream_key(&wanted.key, row.map_or(0, Effect::next_generation))
}

/// Steps a to d have been taken: renders the request and writes the intent down.
pub(crate) async fn fresh(
    wanted: &Wanted<'_>,
    grant: &Grant,
    row: Option<&Effect>,
    passage: Passage,
) -> Result<Draft, Stop> {
    let Passage { mut also, ties, approved, send_for, .. } = passage;
    let host = &wanted.call.host;
    let operation = wanted.operation;
    let (proposal, request) = match approved {
        Some(approved) => (Proposal { ties, ..approved.proposal }, approved.request),
        None => propose(wanted, grant, row, ties)?,
    };
    let secret = lookup::secret(grant).await?;
    recorded(wanted, &mut also).await?;
    let lookups = wanted.fetches.iter();
    let lookups = lookups.map(|fetch| (fetch.fetched.operation.clone(), fetch.digest, fetch.raw.clone().into()));
    let dispatch = Dispatch {
        attempt: rand::rng().random(),
        host: wanted.book.me.id(),
        at: (host.now)(),
        generation: row.map_or(0, Effect::next_generation),
        epoch: proposal.epoch,
        tenant: proposal.tenant,
        account: proposal.account,
        owner: proposal.owner,
        action: proposal.action,
        operation: proposal.operation,
        tool: proposal.tool,
        component: wanted.call.component.description.digest,
        contract: proposal.contract,
        recipe: wanted.recipe,
        label: proposal.label,
        salt: proposal.salt,
        fingerprint: proposal.fingerprint,
        generated: proposal.generated,
        fields: proposal.fields,
        request: proposal.request,
        request_digest: proposal.request_digest,
        downstream_key: downstream_key(wanted, row),
        url: grant.url.clone(),
        credential: version(host, secret.as_ref(), grant),
        lookups: lookups.collect(),
        send_within_ms: u64::try_from(host.policy.limits.send_within.as_millis()).unwrap_or(u64::MAX),
        resend: false,
        irreversible: operation.irreversible(),
        provider_dedupes: operation.provider.dedupe == oncegate_contract::Dedupe::KeyAndBody,
        egress_direct: grant.egress_direct,
        ties: proposal.ties,
    };
    let draft = Draft {
        key: wanted.key.0,
        row: row.cloned(),
        dispatch,
        also,
        request,
        secret,
        route: grant.route.clone(),
        send_until: Instant::now() + host.policy.limits.send_within,
    };
    Ok(draft.within(send_for))
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
pub(crate) async fn again(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    operation: &Operation,
    grant: &Grant,
    row: &Effect,
    passage: Passage,
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
        latest_clock_ms: host.latest_clock(),
        same_request: <[u8; 32]>::from(Sha256::digest(&stored)) == first.request_digest,
        same_credential: credential == first.credential,
        same_url: grant.url == first.url,
    };
    may_resend(row, &terms)?;
    let latest = latest_stamp(book, key).await?;
    if latest > terms.latest_clock_ms {
        return Err("this host's clock is behind the ledger's stamps, so no window can be told".to_owned());
    }
    let ties = Ties { permit: passage.ties.permit, claims: passage.ties.claims, ..first.ties.clone() };
    let attempt = rand::rng().random();
    let dispatch = Dispatch { attempt, host: book.me.id(), at: (host.now)(), resend: true, ties, ..first.clone() };
    Ok(Draft {
        key,
        row: Some(row.clone()),
        dispatch,
        also: passage.also,
        request,
        secret,
        route: grant.route.clone(),
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

/// The latest time that anything knows of since an effect was first dispatched: this host's clock and
/// the ledger's stamps, and what clocks may differ by (rule 2).
pub(crate) async fn known_time(host: &Host, book: &Book, key: [u8; 32]) -> Result<u64, String> {
    let latest = latest_stamp(book, key).await?.max((host.now)());
    Ok(latest.saturating_add(CLOCK_ERROR_MS))
}

/// What a new row needs beside itself: its contract, and how later calls find it.
pub(crate) async fn recorded(wanted: &Wanted<'_>, also: &mut Vec<Append>) -> Result<(), Stop> {
    contract_seen(&wanted.call.host, wanted.book, wanted.call.contract(), also).await?;
    // Only what tells which effect this is; a lookup that many effects share finds none of them.
    let naming: Vec<&str> = wanted.operation.fields.iter().filter_map(key_lookup).collect();
    let lookups = wanted.fetches.iter().filter(|fetch| fetch.effect.is_none());
    for fetch in lookups.filter(|fetch| naming.contains(&fetch.fetched.operation.as_str())) {
        lookup_resolved(wanted.book, fetch.digest, &wanted.key, also).await?;
    }
    Ok(())
}

/// Keeps the contract that this row will be judged by.
pub(crate) async fn contract_seen(
    host: &Host,
    book: &Book,
    contract: &Contract,
    also: &mut Vec<Append>,
) -> Result<(), Stop> {
    let digest = contract.digest();
    let id = StreamId { kind: StreamKind::Contract, id: digest };
    if host.is_stored(&digest) {
        return Ok(());
    }
    if read(book, id).await?.is_empty() {
        also.push(Append::new(id, Expect::Version(0), Event::ContractSeen { text: contract.text.clone(), digest }));
    } else {
        host.was_stored(digest);
    }
    Ok(())
}

/// Lets a later call that made the same lookup find this effect (rule 13).
async fn lookup_resolved(book: &Book, lookup: [u8; 32], key: &EffectKey, also: &mut Vec<Append>) -> Result<(), Stop> {
    let id = StreamId { kind: StreamKind::Lookup, id: lookup };
    let event = Event::LookupResolved { effect: key.0 };
    if !read(book, id).await?.iter().any(|record| record.event == event) {
        also.push(Append::new(id, Expect::Any, event));
    }
    Ok(())
}

async fn read(book: &Book, id: StreamId) -> Result<Vec<oncegate_ledger::Record>, Stop> {
    book.effects.ledger.read(id).await.map_err(|error| ledger_stop(error.into()))
}
