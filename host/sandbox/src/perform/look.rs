//! Looking only: which effects a call would be about. Nothing is sent but lookups, nothing is written.

use std::sync::Arc;

use oncegate_contract::{EffectClass, Value};
use oncegate_ledger::state::{Effect, StateTag};

use super::identity::key_of;
use super::{EPOCHS_MAX, Wanted, ledger_stop};
use crate::call::{Asked, Call, Reply};
use crate::outcome::Detail;
use crate::replay;
use crate::stop::Stop;

/// Derives the key as [`super::perform`] does and answers from its row alone.
pub(crate) async fn look(
    call: &Arc<Call>,
    name: &str,
    given: &[(String, Value)],
    asked: &mut Asked,
) -> Result<Reply, Stop> {
    let operation = call.operation(name, EffectClass::Keyed)?;
    let wanted = Wanted::identify(call, operation, given).await?;
    asked.key = Some(wanted.key.0);
    let Some((key, row)) = wanted.last_row().await? else {
        return Err(Stop::NotSent("it was not asked for before".to_owned()));
    };
    asked.key = Some(key);
    if row.state != StateTag::Done {
        return Err(Stop::Unsettled(Detail::Unknown));
    }
    let answer = replay::answer(&call.host, wanted.book, key, &row, operation).await;
    let answer = answer.map_err(|error| Stop::Unavailable(error.to_string()))?;
    Ok(call.reply(operation, answer, true, Some(true)))
}

impl Wanted<'_> {
    /// The row of the last epoch that there is, under this recipe or an earlier one.
    async fn last_row(&self) -> Result<Option<([u8; 32], Effect)>, Stop> {
        let mut latest = None;
        for epoch in self.epoch..EPOCHS_MAX {
            let Some((key, row)) = self.row_at(epoch).await? else { break };
            let followed = matches!(row.state, StateTag::Undone | StateTag::Superseded);
            latest = Some((key, row));
            if !followed {
                break;
            }
        }
        Ok(latest)
    }

    async fn row_at(&self, epoch: u32) -> Result<Option<([u8; 32], Effect)>, Stop> {
        let mut keys = self.former_keys(epoch)?;
        keys.push(key_of(self.call, self.operation, &self.account, &self.resolved, epoch)?);
        for key in keys {
            let row = self.book.effects.get(key.0).await.map_err(|error| ledger_stop(error.into()))?;
            if let Some(row) = row {
                return Ok(Some((key.0, row)));
            }
        }
        Ok(None)
    }
}
