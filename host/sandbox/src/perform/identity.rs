//! Which effect a call asks for: its fields, its key, and the keys that earlier recipes gave it.

use std::sync::Arc;

use oncegate_contract::{EffectKey, Operation, Owner, Resolved, Value};

use super::{Next, Wanted, bindings, former, owner, pins, undoing};
use crate::call::{Asked, Call, denied, field_stop};
use crate::policy;
use crate::stop::Stop;

impl<'a> Wanted<'a> {
    /// Takes each field from its source, and every pinned one from where it was first resolved.
    pub(super) async fn identify(
        call: &'a Arc<Call>,
        operation: &'a Operation,
        given: &[(String, Value)],
    ) -> Result<Wanted<'a>, Stop> {
        let (mut resolved, fetches) = call.resolve(operation, given)?;
        let today = bindings::label(call, operation)?;
        let book = call.host.book()?;
        // Before any row answers: what is somebody else's is not told either.
        owner::check(call, book, operation).await?;
        let account = bindings::account(call, book, operation, today).await?;
        let admitted = policy::admit(&call.host.policy, &call.component.description.digest, call.tenant());
        admitted.map_err(denied)?;
        let pins = pins::take(call, book, operation, &mut resolved).await?;
        let formers = former::resolve(call, book, operation, given).await?;
        let epoch = undoing::epoch(call, book, operation, &account, &resolved).await?;
        let key = key_of(call, operation, &account, &resolved, epoch)?;
        let recipe = oncegate_contract::recipe(operation);
        Ok(Self {
            call,
            book,
            operation,
            resolved,
            fetches,
            account,
            recipe,
            epoch,
            key,
            pins,
            formers,
            passed: Vec::new(),
            former: false,
        })
    }

    /// Asks the rows of this epoch: those of earlier recipes first, since any of them answers.
    pub(super) async fn at_epoch(&mut self, asked: &mut Asked) -> Result<Next, Stop> {
        self.passed.clear();
        self.former = true;
        for key in self.former_keys(self.epoch)? {
            self.key = key;
            asked.key = Some(key.0);
            match self.answer(asked).await? {
                Next::Fresh(version) => self.passed.push((key.0, version)),
                next => return Ok(next),
            }
        }
        self.former = false;
        self.key = key_of(self.call, self.operation, &self.account, &self.resolved, self.epoch)?;
        asked.key = Some(self.key.0);
        self.answer(asked).await
    }
}

/// The key that an operation's fields have at an epoch.
pub(crate) fn key_of(
    call: &Call,
    operation: &Operation,
    account: &str,
    resolved: &Resolved,
    epoch: u32,
) -> Result<EffectKey, Stop> {
    let owned = call.owner()?;
    let owner = Owner { tenant: call.tenant(), account, owner: &owned.owner };
    oncegate_contract::effect_key(operation, &owner, resolved, epoch).map_err(field_stop)
}
