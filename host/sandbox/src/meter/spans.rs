//! The spans of a call: who listens to them is the program's matter, and nobody does unless asked.
//!
//! Their fields are names that a contract declares, states and codes. A span that nobody listens to costs a branch.

use tracing::Span;
use tracing::field::Empty;

use super::ProviderEnd;
use crate::outcome::Outcome;

/// The target of all of them. It is none that logs are asked for by.
pub const TARGET: &str = "telemetry";
/// What stands for a name that no contract declares.
const UNDECLARED: &str = "_undeclared";

/// One effect that a guest asks for.
pub(crate) fn effect(call: &Span, operation: Option<&str>) -> Span {
    let operation = operation.unwrap_or(UNDECLARED);
    tracing::info_span!(target: "telemetry", parent: call, "effect", "oncegate.operation" = operation,
        "oncegate.effect.outcome" = Empty, "oncegate.replayed" = Empty)
}

/// One lookup that a guest asks for.
pub(crate) fn lookup(call: &Span, operation: Option<&str>) -> Span {
    let operation = operation.unwrap_or(UNDECLARED);
    tracing::info_span!(target: "telemetry", parent: call, "lookup", "oncegate.operation" = operation,
        "oncegate.lookup.outcome" = Empty)
}

/// One append to the ledger, where it is part of a call.
pub(crate) fn commit(events: usize, first: &'static str) -> Span {
    tracing::info_span!(target: "telemetry", "commit", "oncegate.ledger.event" = first,
        "oncegate.ledger.events" = events, "oncegate.ledger.result" = Empty)
}

/// One request to a provider.
pub(crate) fn send(operation: &str, method: Option<&str>, url: &str) -> Span {
    let span = tracing::info_span!(target: "telemetry", "send", "oncegate.operation" = operation,
        "http.request.method" = method, "server.address" = Empty, "server.port" = Empty,
        "http.response.status_code" = Empty, "error.type" = Empty);
    if !span.is_disabled()
        && let Ok(url) = url::Url::parse(url)
    {
        span.record("server.address", url.host_str().unwrap_or_default());
        span.record("server.port", url.port_or_known_default().unwrap_or_default());
    }
    span
}

/// What came of a request to a provider.
pub(crate) fn sent(span: &Span, end: ProviderEnd, status: Option<u16>) {
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    if end != ProviderEnd::Status2xx {
        span.record("error.type", end.word());
    }
}

/// What the caller of a call was told.
pub fn told(call: &Span, outcome: &Outcome) {
    if call.is_disabled() {
        return;
    }
    if let Some(code) = outcome.code {
        call.record("error.type", super::words::code(code));
    }
    call.record("oncegate.replayed", outcome.replayed);
    answered(call, super::CallEnd::Outcome(outcome.status));
}

/// How a call was answered. Its span ends with this; what belongs to it may go on.
pub fn answered(call: &Span, end: super::CallEnd) {
    call.record("oncegate.status", end.word());
}
