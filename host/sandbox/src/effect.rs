//! The WIT interface: what a guest's calls of `lookup`, `effect` and `context` come to.
//!
//! This is the only door between a guest and the world; which of the three interfaces a component
//! can reach is decided by what [`link`] links for its class.

use std::sync::Arc;

use oncegate_contract::{EffectClass, Value};
use wasmtime::component::{HasSelf, Linker};

use crate::call::{Call, Reply};
use crate::guest::Guest;
use crate::limits::FIELDS_MAX;
use crate::over::OverLimit;
use crate::stop::Stop;

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from the WIT files")]
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "actor",
        imports: { default: async | trappable },
    });
}

use bindings::oncegate::effect::effect::EffectError;
use bindings::oncegate::effect::lookup::LookupError;
use bindings::oncegate::effect::types::{self, Field, Header, Response, Settlement};
use bindings::oncegate::effect::{context, effect, lookup};

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

impl Guest {
    /// A guest that asks without end is ended, whatever it asks for: an error would only be asked for again.
    fn count(&self) -> wasmtime::Result<()> {
        if self.call.count_host_call() { Ok(()) } else { Err(OverLimit("host-calls").into()) }
    }
}

impl lookup::Host for Guest {
    async fn fetch(
        &mut self,
        operation: String,
        fields: Vec<Field>,
    ) -> wasmtime::Result<Result<Response, LookupError>> {
        self.count()?;
        let given = match values(fields, self.call.limits.field_bytes_max) {
            Ok(given) => given,
            Err(stop) => {
                self.call.note_lookup_stop(stop.clone());
                return Ok(Err(lookup_error(stop)));
            }
        };
        Ok(self.call.fetch(&operation, given).await.map(response).map_err(lookup_error))
    }
}

impl effect::Host for Guest {
    async fn perform(
        &mut self,
        operation: String,
        fields: Vec<Field>,
    ) -> wasmtime::Result<Result<Response, EffectError>> {
        self.count()?;
        if !self.call.may_act() {
            // By linking a reader has no door; by tool, a reader among actors is stopped here.
            self.call.note_refused_write(&operation);
            return Err(wasmtime::format_err!("a tool that only reads asked for an effect"));
        }
        let given = match values(fields, self.call.limits.field_bytes_max) {
            Ok(given) => given,
            Err(stop) => {
                self.call.note_stop(stop.clone());
                return Ok(Err(effect_error(stop)));
            }
        };
        let call = Arc::clone(&self.call);
        Ok(Call::perform(&call, &operation, given).await.map(response).map_err(effect_error))
    }
}

impl context::Host for Guest {
    async fn get(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        self.count()?;
        Ok(self.call.context_value(&name))
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
        | Stop::Claimed(_)
        | Stop::PermitExceeded(_) => EffectError::NotPermitted(stop.to_string()),
        Stop::LedgerUnavailable(_) | Stop::NotSent(_) | Stop::NotSetUp(_) | Stop::Unavailable(_) => {
            EffectError::Unavailable(stop.to_string())
        }
    }
}
