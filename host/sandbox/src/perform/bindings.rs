//! The recipe of a key and the account behind it: bound at first use, and the same ever after.

use oncegate_contract::Operation;
use oncegate_ledger::{Append, Event, Expect, StreamId, StreamKind};

use super::{Wanted, ledger_stop};
use crate::call::Call;
use crate::host::{Book, stream};
use crate::policy::Grant;
use crate::stop::Stop;

/// The recipe that is bound to this owner's action must be this contract's; gives the stream to bind it
/// in when none is bound yet.
pub(super) async fn check_recipe(
    call: &Call,
    book: &Book,
    operation: &Operation,
    recipe: &[u8; 32],
) -> Result<Option<StreamId>, Stop> {
    let action = operation.action.as_deref().unwrap_or_default();
    let owner = call.contract().component.name.as_str();
    let id = stream(StreamKind::Recipe, &[owner.as_bytes(), action.as_bytes()]);
    match last(book, id).await? {
        Some(Event::RecipeBound { recipe: bound, .. }) if bound != *recipe => Err(Stop::RecipeChanged),
        Some(_) => Ok(None),
        None => Ok(Some(id)),
    }
}

pub(super) async fn last(book: &Book, id: StreamId) -> Result<Option<Event>, Stop> {
    let records = book.effects.ledger.read(id).await.map_err(|error| ledger_stop(error.into()))?;
    Ok(records.into_iter().next_back().map(|record| record.event))
}

impl Wanted<'_> {
    /// The recipe and the account that this owner's effects are bound to: checked, or bound now.
    pub(crate) async fn bindings(&self, grant: &Grant) -> Result<Vec<Append>, Stop> {
        let mut also = Vec::new();
        if let Some(id) = check_recipe(self.call, self.book, self.operation, &self.recipe).await? {
            let event = Event::RecipeBound { recipe: self.recipe, contract: self.call.contract().digest() };
            also.push(Append::new(id, Expect::Version(0), event));
        }
        // By what is done for whom, not by the account's label: a changed label would make every key new.
        let action = self.operation.action.as_deref().unwrap_or_default();
        let owner = self.call.contract().component.name.as_str();
        let parts = [self.call.tenant().as_bytes(), owner.as_bytes(), action.as_bytes()];
        let stream_id = stream(StreamKind::Account, &parts);
        let now = Event::AccountBound {
            account: self.account.clone(),
            endpoint: self.operation.endpoint.clone(),
            url: grant.url.clone(),
            credential: grant.credential.as_ref().map(|usage| usage.name.clone()),
        };
        match last(self.book, stream_id).await? {
            Some(first) if !same_account(&first, &now) => return Err(Stop::AccountChanged),
            Some(_) => {}
            None => also.push(Append::new(stream_id, Expect::Version(0), now)),
        }
        Ok(also)
    }
}

/// The endpoint's URL or credential may only change by an operator's decision.
fn same_account(first: &Event, now: &Event) -> bool {
    let parts = |event: &Event| match event {
        Event::AccountBound { account, endpoint, url, credential }
        | Event::AccountRenamed { account, endpoint, url, credential, .. } => {
            Some((account.clone(), endpoint.clone(), url.clone(), credential.clone()))
        }
        _ => None,
    };
    parts(first).is_some_and(|first| Some(first) == parts(now))
}
