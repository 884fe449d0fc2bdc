//! Looking only: which effects a call would be about. Nothing is sent but lookups, nothing is written.

use std::sync::Arc;

use oncegate_contract::{EffectClass, Owner, Value};
use oncegate_ledger::state::{Effect, StateTag};

use crate::call::{Asked, Call, Reply, denied, field_stop};
use crate::outcome::Detail;
use crate::perform::ledger_stop;
use crate::policy;
use crate::replay;
use crate::stop::Stop;

/// Undone and replaced epochs that are followed; more is a mistake.
const EPOCHS_MAX: u32 = 64;

/// Derives the key as [`crate::perform`] does and answers from its row alone.
pub(crate) async fn look(
    call: &Arc<Call>,
    name: &str,
    given: &[(String, Value)],
    asked: &mut Asked,
) -> Result<Reply, Stop> {
    let operation = call.operation(name, EffectClass::Keyed)?;
    let (resolved, _) = call.resolve(operation, given)?;
    let account = policy::account(&call.host.policy, operation)
        .ok_or_else(|| Stop::NotPermitted("this operation is not permitted".to_owned()))?;
    let book = call.host.book()?;
    policy::admit(&call.host.policy, &call.component.description.digest, call.tenant()).map_err(denied)?;
    let owner = Owner { tenant: call.tenant(), account: &account, owner: &call.contract().component.name };
    let mut latest: Option<([u8; 32], Effect)> = None;
    for epoch in 0..EPOCHS_MAX {
        let key = oncegate_contract::effect_key(operation, &owner, &resolved, epoch).map_err(field_stop)?.0;
        asked.key.get_or_insert(key);
        let row = book.effects.get(key).await.map_err(|error| ledger_stop(error.into()))?;
        let Some(row) = row else { break };
        let followed = matches!(row.state, StateTag::Undone | StateTag::Superseded);
        asked.key = Some(key);
        latest = Some((key, row));
        if !followed {
            break;
        }
    }
    match latest {
        Some((key, row)) if row.state == StateTag::Done => {
            let answer = replay::answer(&call.host, book, key, &row, operation).await;
            let answer = answer.map_err(|error| Stop::Unavailable(error.to_string()))?;
            Ok(call.reply(operation, answer, true, Some(true)))
        }
        Some(_) => Err(Stop::Unsettled(Detail::Unknown)),
        None => Err(Stop::NotSent("it was not asked for before".to_owned())),
    }
}
