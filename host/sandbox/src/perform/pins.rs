//! Values that change: the first resolution within a trigger is kept, and later calls take it.

use std::sync::Arc;

use oncegate_contract::{Operation, Resolved, ResolvedField, Role, Value};
use oncegate_ledger::{Append, Event, Expect, StreamId, StreamKind};

use super::{Wanted, bindings};
use crate::call::Call;
use crate::host::{Book, stream};
use crate::stop::Stop;

/// A value that nobody has pinned yet.
pub(super) struct Pin {
    stream: StreamId,
    value: String,
}

/// Puts the pinned values in place of those just resolved. Returns what a dispatch has to pin.
pub(super) async fn take(
    call: &Arc<Call>,
    book: &Book,
    operation: &Operation,
    resolved: &mut Resolved,
) -> Result<Vec<Pin>, Stop> {
    let mut fresh = Vec::new();
    for name in operation.fields.iter().filter(|field| field.pin).map(|field| &field.name) {
        let id = place(call, operation, resolved, name)?;
        let pinned = pinned(book, id).await?;
        let Some(field) = resolved.fields.iter_mut().find(|field| field.name == *name) else { continue };
        match pinned {
            Some((value, normal)) => *field = ResolvedField { value, normal, ..field.clone() },
            None => fresh.push(Pin { stream: id, value: text(field) }),
        }
    }
    Ok(fresh)
}

/// Where the value is kept: by whose it is, by what the trigger is and by the key parts that never change.
fn place(call: &Call, operation: &Operation, resolved: &Resolved, name: &str) -> Result<StreamId, Stop> {
    let missing = || Stop::ContextMissing("trigger".to_owned());
    let trigger = call.context.get("trigger").ok_or_else(missing)?;
    let action = operation.action.as_deref().unwrap_or_default();
    let owner = call.owner()?.owner;
    let mut parts = vec![call.tenant(), &owner, action, trigger, name];
    let pinned = |name: &str| operation.field(name).is_some_and(|field| field.pin);
    for field in resolved.fields.iter().filter(|field| field.role == Role::Key && !pinned(&field.name)) {
        parts.extend([field.name.as_str(), field.normal.as_deref().unwrap_or_default()]);
    }
    let sequence = resolved.sequence.as_ref().map(|(_, _, n)| n.to_string());
    parts.extend(sequence.as_deref());
    let parts: Vec<&[u8]> = parts.into_iter().map(str::as_bytes).collect();
    Ok(stream(StreamKind::Pin, &parts))
}

async fn pinned(book: &Book, id: StreamId) -> Result<Option<(Value, Option<String>)>, Stop> {
    let Some(Event::Pinned { value }) = bindings::last(book, id).await? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| Stop::LedgerUnavailable(format!("a pinned value is no value: {error}"));
    serde_json::from_str(&value).map(Some).map_err(unreadable)
}

fn text(field: &ResolvedField) -> String {
    // A value and a text: there is nothing in them that JSON lacks.
    serde_json::to_string(&(&field.value, &field.normal)).unwrap_or_default()
}

impl Wanted<'_> {
    /// Another call of the trigger has pinned what this one resolved by itself.
    pub(super) async fn pinned_meanwhile(&self) -> Result<bool, Stop> {
        for pin in &self.pins {
            if bindings::last(self.book, pin.stream).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The pins of this dispatch, each the first.
    pub(super) fn pinning(&self) -> impl Iterator<Item = Append> {
        let pinned =
            |pin: &Pin| Append::new(pin.stream, Expect::Version(0), Event::Pinned { value: pin.value.clone() });
        self.pins.iter().map(pinned)
    }
}
