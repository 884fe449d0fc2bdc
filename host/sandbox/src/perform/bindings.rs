//! The recipe of a key and the account behind it: bound at first use, and the same ever after.

use std::collections::BTreeSet;
use std::sync::Arc;

use oncegate_contract::Operation;
use oncegate_ledger::{Append, Event, Expect, Record, StreamId, StreamKind};

use super::{Wanted, ledger_stop, owner};
use crate::call::Call;
use crate::host::{Book, stream};
use crate::policy::{self, Grant};
use crate::stop::Stop;

/// The recipe that is bound to this owner's action must be this contract's, or one that it lists as an
/// earlier one. Gives what a dispatch appends to bind it, or the guard that it still is the one bound:
/// of two components with different recipes only one can dispatch.
///
/// An action that was renamed is bound under its earlier names too, so that the component that still
/// uses one is refused from then on.
pub(super) async fn check_recipes(
    call: &Call,
    book: &Book,
    operation: &Operation,
    recipe: &[u8; 32],
) -> Result<Vec<Append>, Stop> {
    let owner = call.owner()?.owner;
    let ids: Vec<StreamId> = actions(operation).into_iter().map(|action| recipe_stream(&owner, action)).collect();
    let read = records(call, book, &ids).await?;
    let mut also = Vec::new();
    for (id, records) in ids.into_iter().zip(read) {
        let expect = Expect::Version(records.last().map_or(0, |record| record.version));
        also.push(match records.last().map(|record| &record.event) {
            Some(Event::RecipeBound { recipe: bound, .. }) if bound == recipe => Append::guard(id, expect),
            Some(Event::RecipeBound { recipe: bound, .. })
                if !oncegate_contract::former_recipes(operation).contains(bound) =>
            {
                return Err(Stop::RecipeChanged);
            }
            _ => {
                let contract = call.contract().digest();
                Append::new(id, expect, Event::RecipeBound { recipe: *recipe, contract })
            }
        });
    }
    Ok(also)
}

/// The operation's action, and those that it had before.
pub(super) fn actions(operation: &Operation) -> BTreeSet<&str> {
    let mut actions = BTreeSet::from([operation.action.as_deref().unwrap_or_default()]);
    actions.extend(operation.was.iter().map(|former| former.action.as_str()));
    actions
}

/// Where the recipe of an owner's action is.
pub(super) fn recipe_stream(owner: &str, action: &str) -> StreamId {
    stream(StreamKind::Recipe, &[owner.as_bytes(), action.as_bytes()])
}

pub(super) async fn last(book: &Book, id: StreamId) -> Result<Option<Event>, Stop> {
    let read = book.effects.records(&[id]).await.map_err(|error| ledger_stop(error.into()))?;
    Ok(read.first().and_then(|records| records.last()).map(|record| record.event.clone()))
}

/// The records of streams that seldom change, verified once by a process and not read again while they end the same.
/// What the call is told rests on them.
pub(super) async fn records(call: &Call, book: &Book, ids: &[StreamId]) -> Result<Vec<Arc<[Record]>>, Stop> {
    let read = book.effects.records(ids).await.map_err(|error| ledger_stop(error.into()))?;
    for (id, records) in ids.iter().zip(&read) {
        call.rests_on(*id, records.last().map_or(0, |last| last.version));
    }
    Ok(read)
}

async fn one(call: &Call, book: &Book, id: StreamId) -> Result<Arc<[Record]>, Stop> {
    Ok(records(call, book, &[id]).await?.pop().unwrap_or_default())
}

/// The label of the account that keys are made with: where an operator renamed the one that the policy
/// names today, the label that it had at first. A new label would make every key new.
pub(super) async fn account(call: &Call, book: &Book, operation: &Operation, today: String) -> Result<String, Stop> {
    let records = one(call, book, account_stream(call, operation)?).await?;
    let labels: Vec<&String> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::AccountBound { account, .. } | Event::AccountRenamed { account, .. } => Some(account),
            _ => None,
        })
        .collect();
    match (labels.first(), labels.last()) {
        (Some(first), Some(last)) if **last == today => Ok((*first).clone()),
        _ => Ok(today),
    }
}

/// The account's label in today's policy.
pub(super) fn label(call: &Call, operation: &Operation) -> Result<String, Stop> {
    let label = policy::account(&call.host.policy, operation);
    label.ok_or_else(|| Stop::NotPermitted("this operation is not permitted".to_owned()))
}

/// By what is done for whom, not by the account's label: a changed label would make every key new.
fn account_stream(call: &Call, operation: &Operation) -> Result<StreamId, Stop> {
    let action = operation.action.as_deref().unwrap_or_default();
    Ok(StreamId::account(call.tenant(), &call.owner()?.owner, action))
}

impl Wanted<'_> {
    /// The recipe and the account that this owner's effects are bound to: checked, or bound now.
    pub(crate) async fn bindings(&self, grant: &Grant) -> Result<Vec<Append>, Stop> {
        let mut also = check_recipes(self.call, self.book, self.operation, &self.recipe).await?;
        also.extend(owner::check(self.call, self.book, self.operation).await?);
        also.push(self.bound_account(grant).await?);
        Ok(also)
    }

    /// By what is done for whom, not by the account's label: a changed label would make every key new.
    async fn bound_account(&self, grant: &Grant) -> Result<Append, Stop> {
        let id = account_stream(self.call, self.operation)?;
        let now = Event::AccountBound {
            account: label(self.call, self.operation)?,
            endpoint: self.operation.endpoint.clone(),
            url: grant.url.clone(),
            credential: grant.credential.as_ref().map(|usage| usage.name.clone()),
            proof: self.proven_account(grant).await?,
        };
        let records = one(self.call, self.book, id).await?;
        let expect = Expect::Version(records.last().map_or(0, |record| record.version));
        match records.last().map(|record| &record.event) {
            Some(bound) if !same_account(bound, &now) => Err(Stop::AccountChanged),
            // A proof that is not asked for any more stays on record.
            Some(bound) if *bound == now || proof(&now).is_none() => Ok(Append::guard(id, expect)),
            Some(_) | None => Ok(Append::new(id, expect, now)),
        }
    }
}

/// Endpoint, URL and credential may only change by an operator's decision, or where the provider says
/// that it is the same account. The label is part of every key and never changes by itself.
fn same_account(bound: &Event, now: &Event) -> bool {
    let parts = |event: &Event| match event {
        Event::AccountBound { account, endpoint, url, credential, .. }
        | Event::AccountRenamed { account, endpoint, url, credential, .. } => {
            Some((account.clone(), endpoint.clone(), url.clone(), credential.clone()))
        }
        _ => None,
    };
    let (Some(first), Some(last)) = (parts(bound), parts(now)) else { return false };
    match (proof(bound), proof(now)) {
        (Some(bound), Some(now)) => bound == now && first.0 == last.0,
        _ => first == last,
    }
}

fn proof(event: &Event) -> Option<&str> {
    match event {
        Event::AccountBound { proof, .. } => proof.as_deref(),
        _ => None,
    }
}
