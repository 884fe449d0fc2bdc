//! One lookup: rendered, sent, its answer kept as it came.

mod hops;

use oncegate_contract::{Answer, Operation, Request, Resolved};
use tokio::time::Instant;
use tracing::Instrument;

use crate::credential::Credential;
use crate::egress::Route;
use crate::host::{Host, digest};
use crate::http::{self, Patience, Witness};
use crate::limits::Limits;
use crate::meter::{self, ProviderEnd, spans};
use crate::policy::Grant;
use crate::stop::Stop;

/// Methods that ask and change nothing (RFC 9110, section 9.2.1).
const SAFE_METHODS: [&str; 2] = ["GET", "HEAD"];

/// A lookup's answer.
pub(crate) struct Found {
    /// Parsed.
    pub(crate) answer: Answer,
    /// Identity of the request: tenant, account and what was asked.
    pub(crate) digest: [u8; 32],
    /// As it came.
    pub(crate) raw: Vec<u8>,
}

/// Sends a lookup, which is counted.
pub(crate) async fn send(
    host: &Host,
    operation: &Operation,
    grant: &Grant,
    resolved: &Resolved,
    tenant: &str,
    bytes_max: usize,
) -> Result<Found, Stop> {
    let method = Some(operation.method.as_str()).filter(|_| operation.query.is_none());
    let span = spans::send(&operation.name, method, &grant.url);
    let began = Instant::now();
    let sent = Box::pin(send_uncounted(host, operation, grant, resolved, tenant, bytes_max));
    let found = sent.instrument(span.clone()).await;
    let (end, status) = match &found {
        Ok(found) => (ProviderEnd::of_status(found.answer.status), Some(found.answer.status)),
        Err(Stop::Limit(_)) => (ProviderEnd::TooLarge, None),
        Err(Stop::Unavailable(_)) => (ProviderEnd::Unavailable, None),
        // The provider had no part in it.
        Err(_) => {
            spans::sent(&span, ProviderEnd::NotSent, None);
            return found;
        }
    };
    spans::sent(&span, end, status);
    host.meter.provider(meter::Asked::Lookup, &operation.name, end, Some(began.elapsed()));
    found
}

/// Sends a lookup. It is never answered from an earlier one. Where the answer sends it on, it goes to places
/// that the policy names for this component, and the credential to the first one alone.
async fn send_uncounted(
    host: &Host,
    operation: &Operation,
    grant: &Grant,
    resolved: &Resolved,
    tenant: &str,
    bytes_max: usize,
) -> Result<Found, Stop> {
    if let (Some(database), Some(query)) = (&grant.database, &operation.query) {
        // Boxed: the drivers' futures are large, and most lookups are none of theirs.
        let sent = crate::database::send(host, operation, query, grant, database, resolved, tenant, bytes_max);
        return Box::pin(sent).await;
    }
    if !SAFE_METHODS.contains(&operation.method.as_str()) {
        return Err(Stop::NotPermitted("lookups by other methods than GET and HEAD are not permitted".to_owned()));
    }
    let request = oncegate_contract::render(operation, &grant.url, resolved, None).map_err(crate::call::field_stop)?;
    crate::attempt::within_limit(&request, &host.policy.limits)?;
    let secret = secret(grant).await?;
    let limits = &host.policy.limits;
    let patience = Patience { answer_bytes_max: bytes_max.min(limits.evidence_bytes_max), ..patience(limits) };
    let by_call = bytes_max < limits.evidence_bytes_max;
    let found = hops::follow(operation, grant, &request, secret.as_ref(), patience).await;
    let (answer, raw) = found.map_err(|stop| if by_call { stop } else { by_answer(stop) })?;
    host.saw_date(&answer);
    let digest = digest(&[
        tenant.as_bytes(),
        grant.account.as_bytes(),
        request.method.as_bytes(),
        request.url.as_bytes(),
        &request.body,
    ]);
    Ok(Found { answer, digest, raw })
}

/// The bytes of this one answer were the limit, not those of all lookups of the call.
fn by_answer(stop: Stop) -> Stop {
    match stop {
        Stop::Limit(name) if name == "lookup-bytes" => Stop::Limit("evidence-max".to_owned()),
        other => other,
    }
}

/// What one exchange of a lookup came to.
struct Once {
    answer: Answer,
    /// The answer's bytes, as they may be kept.
    raw: Vec<u8>,
    /// The answer gave the credential away.
    echoes: bool,
}

async fn once(
    operation: &Operation,
    request: &Request,
    route: &Route,
    secret: Option<&Credential>,
    shown: bool,
    patience: Patience,
) -> Result<Once, Stop> {
    let unavailable = |why: String| Stop::Unavailable(why);
    let headers = match secret.filter(|_| shown) {
        Some(secret) => vec![secret.header().map_err(|error| unavailable(error.to_string()))?],
        None => Vec::new(),
    };
    // Boxed, as most of what a waiting lookup holds: what is around it stays small.
    let sent = Box::pin(http::exchange(request, &headers, route, patience, &mut Reader))
        .await
        .map_err(|error| logged(&operation.name, &error))?;
    if sent.end == http::End::TooLarge {
        return Err(Stop::Limit("lookup-bytes".to_owned()));
    }
    if sent.end != http::End::Complete {
        tracing::warn!(operation = %operation.name, end = ?sent.end, error = ?sent.error, "a lookup was not answered");
        return Err(unavailable("the provider did not answer in time".to_owned()));
    }
    let mut answer = Box::pin(http::parse(&request.method, &sent.raw, true))
        .await
        .map_err(|error| logged(&operation.name, &error))?;
    if oncegate_contract::is_coded(&answer) {
        return Err(unavailable("the provider answered in a coding that was not asked for".to_owned()));
    }
    let echo = secret.filter(|secret| secret.is_in_answer(&sent.raw));
    let raw = match echo {
        // No row and no guest ever holds the secret: a lookup's answer is kept without it from the start.
        Some(secret) => {
            secret.scrub(&mut answer);
            http::written(&answer)
        }
        None => sent.raw,
    };
    Ok(Once { answer, raw, echoes: echo.is_some() })
}

/// The credential of a grant, read now.
pub(crate) async fn secret(grant: &Grant) -> Result<Option<Credential>, Stop> {
    let Some(usage) = &grant.credential else { return Ok(None) };
    let secret = Credential::read(usage).await.map_err(|error| {
        tracing::error!(%error, "a credential cannot be used");
        Stop::NotSetUp(format!("the credential {} cannot be used", usage.name))
    })?;
    Ok(Some(secret))
}

/// The guest learns that there is no answer; addresses and causes are for the log.
fn logged(operation: &str, error: &dyn std::error::Error) -> Stop {
    tracing::warn!(operation, %error, "a lookup could not be made");
    Stop::Unavailable("the provider could not be reached or gave no usable answer".to_owned())
}

pub(crate) fn patience(limits: &Limits) -> Patience {
    Patience {
        connect: limits.connect_within,
        total: limits.request_deadline,
        idle: limits.idle_max,
        answer_bytes_max: limits.evidence_bytes_max,
    }
}

/// A lookup has no fence, and its answer is kept with the effect that it resolves.
struct Reader;

#[async_trait::async_trait]
impl Witness for Reader {
    async fn before_first_byte(&mut self) -> Result<(), String> {
        Ok(())
    }

    async fn received(&mut self, _: u64, _: &[u8]) {}
}
