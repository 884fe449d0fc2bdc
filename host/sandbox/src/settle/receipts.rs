//! Whose a receipt is: an object at the provider belongs to one effect key.

use oncegate_contract::{Operation, Place, Resolved};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Dispatch, EffectsError, Event, Expect, Outcome, StreamId, consequences};

use crate::attempt::{AttemptError, decode};
use crate::host::{Book, Host};

/// Whose a receipt is, seen from one effect; of several, the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Nobody else's.
    Nobody,
    /// That of an effect which was undone since; its key.
    Undone([u8; 32]),
    /// That of an effect of another kind, whose identifiers may be counted by themselves.
    OtherPath,
    /// That of another effect of the same kind.
    SamePath,
}

/// The owner of a receipt, and the condition that this has not changed.
pub(super) struct Owned {
    pub(super) owner: Owner,
    pub(super) guard: Option<Append>,
}

/// Looks up whose a receipt is, for the effect `key` of `operation`.
pub(super) async fn owner(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    account: &str,
    operation: &Operation,
    receipt: &str,
) -> Result<Owned, AttemptError> {
    if !consequences::is_indexed(receipt) {
        return Ok(Owned { owner: Owner::Nobody, guard: None });
    }
    let id = StreamId::receipt(account, receipt);
    let records = book.effects.records(&[id]).await.map_err(EffectsError::from)?.pop().unwrap_or_default();
    let version = records.last().map_or(0, |record| record.version);
    let mut owner = Owner::Nobody;
    for record in &*records {
        let Event::ReceiptKnown { effect } = record.event else { continue };
        if effect != key
            && let Some(row) = book.effects.get(effect).await.map_err(EffectsError::from)?
        {
            owner = owner.max(seen_from(host, book, operation, effect, &row).await?);
        }
    }
    Ok(Owned { owner, guard: Some(Append::guard(id, Expect::Version(version))) })
}

async fn seen_from(
    host: &Host,
    book: &Book,
    operation: &Operation,
    effect: [u8; 32],
    row: &Effect,
) -> Result<Owner, AttemptError> {
    match row.heard_state() {
        StateTag::NoEffect | StateTag::Revoked => return Ok(Owner::Nobody),
        StateTag::Undone => return Ok(Owner::Undone(effect)),
        _ => {}
    }
    let same = match (row.judged_by(), &row.tombstone) {
        (Some((digest, name)), _) => {
            let contract = host.contract(book, digest).await?;
            let other = contract.operations.get(name);
            other.is_some_and(|other| other.method == operation.method && other.path.is_like(&operation.path))
        }
        // A pruned row has no contract any more; its operation's name is what is left.
        (None, Some(tombstone)) => tombstone.operation == operation.name,
        (None, None) => false,
    };
    Ok(if same { Owner::SamePath } else { Owner::OtherPath })
}

/// Whether a receipt stands in the request's path: then it names what was changed, which may be changed
/// again, and not what was made.
async fn names_the_target(
    book: &Book,
    dispatch: &Dispatch,
    operation: &Operation,
    receipt: &str,
) -> Result<bool, AttemptError> {
    let in_path = operation.fields.iter().filter(|field| matches!(field.at, Some(Place::Path(_))));
    let in_path: Vec<&str> = in_path.map(|field| field.name.as_str()).collect();
    if in_path.is_empty() {
        return Ok(false);
    }
    let stored = book.effects.ledger.load(&dispatch.fields).await.map_err(EffectsError::from)?;
    let resolved: Resolved = decode(&stored)?;
    let mut values = in_path.into_iter().filter_map(|name| resolved.field(name));
    Ok(values.any(|field| field.value.canonical() == receipt))
}

/// What an answer came to, once it is known whose its receipt is: one that is another effect's says
/// nothing of this one. With the condition that nobody takes the receipt meanwhile.
pub(crate) async fn belonging(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    outcome: Outcome,
) -> Result<(Outcome, Vec<Append>), AttemptError> {
    let receipt = match &outcome {
        Outcome::Done { receipt } => Some(receipt),
        Outcome::Issued { receipt } => receipt.as_ref(),
        Outcome::NoEffect { .. } | Outcome::Unknown { .. } => None,
    };
    let (Some(receipt), Some(dispatch)) = (receipt, row.dispatch.as_deref()) else { return Ok((outcome, Vec::new())) };
    let contract = host.contract(book, dispatch.contract).await?;
    let Some(operation) = contract.operations.get(&dispatch.operation) else { return Ok((outcome, Vec::new())) };
    if names_the_target(book, dispatch, operation, receipt).await? {
        return Ok((outcome, Vec::new()));
    }
    let owned = owner(host, book, key, &dispatch.account, operation, receipt).await?;
    if owned.owner == Owner::SamePath {
        let why = "the provider answered with the receipt of another effect".to_owned();
        return Ok((Outcome::Unknown { why }, Vec::new()));
    }
    Ok((outcome, owned.guard.into_iter().collect()))
}
