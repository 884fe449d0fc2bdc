//! The WIT interface: what a guest's calls of `lookup`, `effect` and `context` come to.
//!
//! This is the only door between a guest and the world; which of the three interfaces a component
//! can reach is decided by what [`link`] links for its class.

use std::sync::Arc;

use oncegate_contract::{EffectClass, Value};
use tracing::{Instrument, Span};
use wasmtime::component::{HasSelf, Linker};

use crate::call::{Call, Reply};
use crate::computing;
use crate::door::{Ask, Told};
use crate::guest::Guest;
use crate::limits::FIELDS_MAX;
use crate::meter::spans;
use crate::stop::Stop;

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from the WIT files")]
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "actor",
        imports: { default: async | trappable },
    });
}

use bindings::oncegate::effect::types;
use bindings::oncegate::effect::{context, effect, lookup};

pub(crate) use bindings::oncegate::effect::effect::EffectError;
pub(crate) use bindings::oncegate::effect::lookup::LookupError;
pub(crate) use bindings::oncegate::effect::types::{Field, Header, Response, Settlement, Value as FieldValue};

/// Links the door of a class: a component that cannot cause effects meets no `effect` at all.
pub(crate) fn link(linker: &mut Linker<Guest>, class: EffectClass) -> wasmtime::Result<()> {
    lookup::add_to_linker::<Guest, HasSelf<Guest>>(linker, |guest| guest)?;
    context::add_to_linker::<Guest, HasSelf<Guest>>(linker, |guest| guest)?;
    types::add_to_linker::<Guest, HasSelf<Guest>>(linker, |guest| guest)?;
    match class {
        EffectClass::None => Ok(()),
        EffectClass::Keyed => effect::add_to_linker::<Guest, HasSelf<Guest>>(linker, |guest| guest),
    }
}

impl types::Host for Guest {}

impl lookup::Host for Guest {
    async fn fetch(
        &mut self,
        operation: String,
        fields: Vec<Field>,
    ) -> wasmtime::Result<Result<Response, LookupError>> {
        match self.door.ask(Ask::Fetch { operation, fields }).await? {
            Told::Fetch(told) => Ok(told),
            other => Err(other.end()),
        }
    }
}

impl effect::Host for Guest {
    async fn perform(
        &mut self,
        operation: String,
        fields: Vec<Field>,
    ) -> wasmtime::Result<Result<Response, EffectError>> {
        match self.door.ask(Ask::Perform { operation, fields }).await? {
            Told::Perform(told) => Ok(told),
            other => Err(other.end()),
        }
    }
}

impl context::Host for Guest {
    async fn get(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        match self.door.ask(Ask::Context { name }).await? {
            Told::Context(value) => Ok(value),
            other => Err(other.end()),
        }
    }
}

/// What a call is told, wherever its guest runs. All that decides is here and behind, in the host's process.
pub(crate) async fn answer(call: &Arc<Call>, ask: Ask) -> Told {
    computing::while_waiting(call, answered(call, ask)).await
}

async fn answered(call: &Arc<Call>, ask: Ask) -> Told {
    // A guest that asks without end is ended, whatever it asks for: an error would only be asked for again.
    if !call.count_host_call() {
        return Told::OverLimit("host-calls");
    }
    match ask {
        Ask::Fetch { operation, fields } => {
            let span = spans::lookup(&call.span, call.declared(&operation));
            // Boxed before it is wrapped: each wrapping would move it over the guest's stack, of which every page stays.
            let told = Box::pin(fetch(call, &operation, fields)).instrument(span.clone()).await;
            span.record("oncegate.lookup.outcome", told.as_ref().map_or_else(lookup_word, |_| "answered"));
            Told::Fetch(told)
        }
        // Boxed: it is many times as large as a lookup, of which a thousand may wait at once.
        Ask::Perform { operation, fields } => {
            let span = spans::effect(&call.span, call.declared(&operation));
            let told = Box::pin(perform(call, &operation, fields)).instrument(span.clone()).await;
            record(&span, &told);
            told
        }
        Ask::Context { name } => Told::Context(call.context_value(&name)),
    }
}

/// What came of an effect, for its span.
fn record(span: &Span, told: &Told) {
    let word = match told {
        Told::Perform(Ok(response)) => {
            span.record("oncegate.replayed", response.replayed);
            if response.settled == Settlement::NoEffect { "no-effect" } else { "done" }
        }
        Told::Perform(Err(error)) => effect_word(error),
        _ => "not-permitted",
    };
    span.record("oncegate.effect.outcome", word);
}

/// As the WIT names it.
fn effect_word(error: &EffectError) -> &'static str {
    match error {
        EffectError::InProgress => "in-progress",
        EffectError::Unknown => "unknown",
        EffectError::KeyReused(_) => "key-reused",
        EffectError::AwaitingApproval => "awaiting-approval",
        EffectError::Revoked => "revoked",
        EffectError::NotPermitted(_) => "not-permitted",
        EffectError::Limit(_) => "limit",
        EffectError::InvalidField(_) => "invalid-field",
        EffectError::ContextMissing(_) => "context-missing",
        EffectError::Unavailable(_) => "unavailable",
    }
}

fn lookup_word(error: &LookupError) -> &'static str {
    match error {
        LookupError::NotPermitted(_) => "not-permitted",
        LookupError::Limit(_) => "limit",
        LookupError::InvalidField(_) => "invalid-field",
        LookupError::ContextMissing(_) => "context-missing",
        LookupError::Unavailable(_) => "unavailable",
    }
}

async fn fetch(call: &Arc<Call>, operation: &str, fields: Vec<Field>) -> Result<Response, LookupError> {
    match values(fields, call.limits.field_bytes_max) {
        Ok(given) => call.fetch(operation, given).await.map(response).map_err(lookup_error),
        Err(stop) => {
            call.note_lookup_stop(stop.clone());
            Err(lookup_error(stop))
        }
    }
}

async fn perform(call: &Arc<Call>, operation: &str, fields: Vec<Field>) -> Told {
    if !call.may_act() {
        // By linking a reader has no door; by tool, a reader among actors is stopped here.
        call.note_refused_write(operation);
        return Told::Trap("a tool that only reads asked for an effect".to_owned());
    }
    match values(fields, call.limits.field_bytes_max) {
        Ok(given) => Told::Perform(Call::perform(call, operation, given).await.map(response).map_err(effect_error)),
        Err(stop) => {
            call.note_stop(stop.clone());
            Told::Perform(Err(effect_error(stop)))
        }
    }
}

fn values(fields: Vec<Field>, bytes_max: usize) -> Result<Vec<(String, Value)>, Stop> {
    if fields.len() > FIELDS_MAX {
        return Err(Stop::Limit("fields".to_owned()));
    }
    fields.into_iter().map(|field| value(field, bytes_max)).collect()
}

fn value(field: Field, bytes_max: usize) -> Result<(String, Value), Stop> {
    let size = match &field.value {
        types::Value::Text(text) | types::Value::Decimal(text) | types::Value::Json(text) => text.len(),
        types::Value::Bytes(bytes) => bytes.len(),
        types::Value::Integer(_) | types::Value::Boolean(_) => 0,
    };
    if size > bytes_max || field.name.len() > bytes_max {
        return Err(Stop::Limit("field".to_owned()));
    }
    let no_json = |error| {
        Stop::InvalidField(format!("{}: not a JSON document: {error}", oncegate_contract::safe_text(&field.name)))
    };
    let value = match field.value {
        types::Value::Text(text) => Value::Text(text),
        types::Value::Integer(number) => Value::Integer(number),
        types::Value::Decimal(text) => Value::Decimal(text),
        types::Value::Boolean(truth) => Value::Boolean(truth),
        types::Value::Json(text) => Value::Json(serde_json::from_str(&text).map_err(no_json)?),
        types::Value::Bytes(bytes) => Value::Bytes(bytes),
    };
    Ok((field.name, value))
}

fn response(reply: Reply) -> Response {
    Response {
        status: reply.status,
        body: reply.body,
        headers: reply.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        replayed: reply.replayed,
        settled: match reply.done {
            None => Settlement::None,
            Some(true) => Settlement::Done,
            Some(false) => Settlement::NoEffect,
        },
    }
}

fn lookup_error(stop: Stop) -> LookupError {
    match stop {
        Stop::InvalidField(text) => LookupError::InvalidField(text),
        Stop::ContextMissing(name) => LookupError::ContextMissing(name),
        Stop::Limit(name) => LookupError::Limit(name),
        Stop::NotPermitted(text) => LookupError::NotPermitted(text),
        other => LookupError::Unavailable(other.to_string()),
    }
}

fn effect_error(stop: Stop) -> EffectError {
    match stop {
        Stop::InvalidField(text) => EffectError::InvalidField(text),
        Stop::ContextMissing(name) => EffectError::ContextMissing(name),
        Stop::Limit(name) => EffectError::Limit(name),
        Stop::NotPermitted(text) => EffectError::NotPermitted(text),
        Stop::KeyReused(fields) => EffectError::KeyReused(fields),
        Stop::ClientKeyReused => EffectError::KeyReused(vec!["idempotency-key".to_owned()]),
        Stop::InProgress => EffectError::InProgress,
        Stop::Unsettled(_) => EffectError::Unknown,
        Stop::AwaitingApproval | Stop::ApprovalDoesNotCount => EffectError::AwaitingApproval,
        Stop::Revoked => EffectError::Revoked,
        Stop::RecipeChanged
        | Stop::SequenceGap(_)
        | Stop::PlanMismatch(_)
        | Stop::AccountChanged
        | Stop::OwnerChanged { .. }
        | Stop::OwnerHeld { .. }
        | Stop::Claimed(_)
        | Stop::PermitExceeded(_) => EffectError::NotPermitted(stop.to_string()),
        Stop::LedgerUnavailable(_) | Stop::NotSent(_) | Stop::NotSetUp(_) | Stop::Unavailable(_) => {
            EffectError::Unavailable(stop.to_string())
        }
    }
}
