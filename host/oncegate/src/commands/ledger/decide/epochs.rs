//! The other epochs of an effect's target: their keys follow from what is stored with it.

use anyhow::Context;
use oncegate_contract::{Contract, Owner, Resolved, effect_key};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Effects, Event, StateTag, StreamId, StreamKind};

/// Later epochs that are looked for; more than anybody ever decided.
const LATER_MAX: u32 = 64;

/// One epoch of a target.
pub(in crate::commands::ledger) struct Epoch {
    pub(in crate::commands::ledger) key: [u8; 32],
    pub(in crate::commands::ledger) row: Effect,
}

/// Every epoch of the row's target that the ledger has, its own among them, in order; none where what is
/// stored does not say which they are.
pub(in crate::commands::ledger) async fn epochs(effects: &Effects, row: &Effect) -> anyhow::Result<Option<Vec<Epoch>>> {
    let Some((contract, resolved)) = stored(effects, row).await? else { return Ok(None) };
    let Some([tenant, account, owner, _, _, operation]) = row.names() else { return Ok(None) };
    let Some(operation) = contract.operations.get(operation) else { return Ok(None) };
    let owner = Owner { tenant, account, owner };
    let mut found = Vec::new();
    for epoch in 0..row.epoch.saturating_add(LATER_MAX) {
        let Ok(key) = effect_key(operation, &owner, &resolved, epoch) else { return Ok(None) };
        match effects.get(key.0).await.context("an epoch cannot be read")? {
            Some(row) => found.push(Epoch { key: key.0, row }),
            None if epoch > row.epoch => break,
            None => {}
        }
    }
    Ok(Some(found))
}

/// The contract it was rendered under, and its resolved fields.
pub(crate) async fn stored(effects: &Effects, row: &Effect) -> anyhow::Result<Option<(Contract, Resolved)>> {
    let waits = row.state == StateTag::AwaitingApproval;
    let proposed = row.proposal.as_deref().filter(|_| waits || row.dispatch.is_none());
    let (digest, fields) = match (proposed, row.dispatch.as_deref()) {
        (Some(proposal), _) => (proposal.contract, &proposal.fields),
        (None, Some(dispatch)) => (dispatch.contract, &dispatch.fields),
        (None, None) => return Ok(None),
    };
    let bytes = match effects.ledger.load(fields).await {
        Ok(bytes) => bytes,
        Err(error) if error.withholds_bytes() => return Ok(None),
        Err(error) => return Err(error).context("the stored fields cannot be read"),
    };
    let records = effects.ledger.read(StreamId { kind: StreamKind::Contract, id: digest }).await;
    let text = records.context("a contract cannot be read")?.into_iter().find_map(|record| match record.event {
        Event::ContractSeen { text, .. } => Some(text),
        _ => None,
    });
    let contract = text.and_then(|text| Contract::parse("the stored contract", &text).ok());
    Ok(contract.zip(serde_json::from_slice(&bytes).ok()))
}
