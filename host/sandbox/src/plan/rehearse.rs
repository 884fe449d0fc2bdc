//! Running a tool to hear what it would do: lookups are made, effects are noted and not sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use oncegate_contract::{Resolved, Role, Value};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Proposal, Ties};
use serde_json::Value as Json;

use super::{PlanSource, PlannedEffect, Target};
use crate::attempt;
use crate::call::{Asked, Call, Reply, denied};
use crate::host::Book;
use crate::load::Loaded;
use crate::outcome::{Detail, Ended};
use crate::perform::{Wanted, key_of};
use crate::running;
use crate::sandbox::{CallRequest, Sandbox};
use crate::stop::Stop;

/// Characters of a guest's error that are repeated.
const ERROR_CHARS_MAX: usize = 200;

/// A target that is being resolved, and what its tool asked for so far.
pub(crate) struct Rehearsal {
    plan: String,
    values: BTreeMap<String, Value>,
    noted: Mutex<Vec<Noted>>,
}

/// One effect that was asked for.
#[derive(Clone)]
pub(crate) struct Noted {
    pub(super) effect: PlannedEffect,
    /// Its key at the epoch in force.
    pub(super) key: [u8; 32],
    /// What would be sent; none where a row exists.
    pub(super) proposal: Option<Proposal>,
}

impl Rehearsal {
    pub(crate) fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    fn note(&self, noted: Noted) {
        let mut all = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|one| one.effect.key == noted.effect.key) {
            all.push(noted);
        }
    }

    fn noted(&self) -> Vec<Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A target with all that its tool asked for.
pub(super) struct Rehearsed {
    pub(super) place: String,
    pub(super) arguments: Json,
    pub(super) values: BTreeMap<String, Value>,
    pub(super) noted: Vec<Noted>,
}

impl Sandbox {
    /// Runs the tool for one target; or why its effects cannot be told.
    pub(super) async fn rehearse(
        &self,
        component: &Arc<Loaded>,
        tool: &str,
        context: &BTreeMap<String, String>,
        target: Target,
    ) -> Result<Rehearsed, String> {
        let Target { place, arguments, values } = target;
        let request = CallRequest { tool: tool.to_owned(), arguments, context: context.clone() };
        let prepared = self.prepare(component, request)?;
        let book = self.host.book().map_err(|stop| stop.to_string())?;
        let rehearsal = Rehearsal {
            plan: context.get("plan").cloned().unwrap_or_default(),
            values: values.clone(),
            noted: Mutex::default(),
        };
        let arguments = prepared.arguments.clone();
        let (call, given) = prepared.call(&self.host, component, PlanSource::Rehearsal(rehearsal));
        let ended = running::run(Arc::clone(&call), given).await;
        if let Ended::Limit(name) = &ended {
            return Err(format!("the tool exceeded the limit {name}"));
        }
        // What it would have asked for next is not known.
        if ended == Ended::Lost {
            return Err("the process that ran the tool was lost".to_owned());
        }
        let refused = call.asked().into_iter().filter_map(|asked| asked.stop);
        let refused = refused.chain(call.lookup_stop()).find(|stop| *stop != Stop::AwaitingApproval);
        if let Some(stop) = refused {
            return Err(stop.to_string());
        }
        let mut noted = call.plan.rehearsal().map(Rehearsal::noted).unwrap_or_default();
        if noted.is_empty() {
            noted.extend(self.found(book, &call).await?);
        }
        if noted.is_empty() {
            return Err(no_effect(&ended));
        }
        Ok(Rehearsed { place, arguments, values, noted })
    }

    /// The row that this call's lookups resolved before: a tool that looks first asks for nothing when
    /// the provider says that it was done.
    async fn found(&self, book: &Book, call: &Call) -> Result<Option<Noted>, String> {
        let keys = Self::keys_by_lookups(book, call).await;
        let [key] = keys[..] else { return Ok(None) };
        let row = book.effects.get(key).await.map_err(|error| error.to_string())?;
        let Some(row) = row.filter(|row| row.state != StateTag::NoEffect) else { return Ok(None) };
        let Some(dispatch) = row.dispatch.as_deref().filter(|dispatch| dispatch.tool == call.tool) else {
            return Ok(None);
        };
        let stored = book.effects.ledger.load(&dispatch.fields).await.map_err(|error| error.to_string())?;
        let resolved: Resolved = attempt::decode(&stored).map_err(|error| error.to_string())?;
        let Some(operation) = call.contract().operations.get(&dispatch.operation) else { return Ok(None) };
        let base = key_of(call, operation, &dispatch.account, &resolved, 0).map_err(|stop| stop.to_string())?;
        let effect = PlannedEffect {
            key: base.0,
            epoch: row.epoch,
            former: None,
            operation: dispatch.operation.clone(),
            account: dispatch.account.clone(),
            recipe: dispatch.recipe,
            label: dispatch.label.clone(),
            fields: identity(&resolved),
            before: Some(row.state),
        };
        Ok(Some(Noted { effect, key, proposal: None }))
    }
}

fn no_effect(ended: &Ended) -> String {
    let said = match ended {
        Ended::Failed(error) => error.to_string(),
        Ended::Trapped(why) => why.clone(),
        _ => return "the tool asked for no effect".to_owned(),
    };
    let said: String = said.chars().take(ERROR_CHARS_MAX).collect();
    format!("the tool asked for no effect and said: {said}")
}

/// What identifies an effect and is bound to it; generated text is worded anew by each call.
fn identity(resolved: &Resolved) -> Resolved {
    let fields = resolved.fields.iter().filter(|field| matches!(field.role, Role::Key | Role::Bound));
    Resolved { fields: fields.cloned().collect(), fetches: Vec::new(), sequence: resolved.sequence.clone() }
}

impl Wanted<'_> {
    /// Notes what would be sent, and sends nothing. Everything that does not depend on the moment of
    /// sending is checked as for a dispatch.
    pub(crate) async fn rehearse(mut self, rehearsal: &Rehearsal, asked: &mut Asked) -> Result<Reply, Stop> {
        let base = key_of(self.call, self.operation, &self.account, &self.resolved, 0)?.0;
        self.call.count_effect(&base)?;
        asked.key = Some(base);
        self.call.note(asked.clone());
        let grant = self.call.grant(self.operation).map_err(denied)?;
        self.bindings(&grant).await?;
        let former = self.former_row().await?;
        let row = match &former {
            Some((_, row)) => Some(row.clone()),
            None => self.latest().await?,
        };
        let ties = Ties {
            parent: self.call.context.get("parent").cloned(),
            plan: Some(rehearsal.plan.clone()),
            ..Ties::default()
        };
        let (proposal, _) = attempt::propose(&self, &grant, row.as_ref(), ties)?;
        let effect = PlannedEffect {
            key: base,
            epoch: self.epoch,
            former: former.map(|(key, _)| key),
            operation: self.operation.name.clone(),
            account: self.account.clone(),
            recipe: self.recipe,
            label: proposal.label.clone(),
            fields: identity(&self.resolved),
            before: row.as_ref().map(|row| row.state),
        };
        let proposal = row.is_none().then(|| Proposal { plan: Some(rehearsal.plan.clone()), ..proposal });
        rehearsal.note(Noted { effect, key: self.key.0, proposal });
        Err(Stop::AwaitingApproval)
    }

    /// The row that an earlier recipe of the key made, if one did.
    async fn former_row(&self) -> Result<Option<([u8; 32], Effect)>, Stop> {
        for key in self.former_keys(self.epoch)? {
            let row = self.book.effects.get(key.0).await;
            if let Some(row) = row.map_err(|error| Stop::LedgerUnavailable(error.to_string()))? {
                return Ok(Some((key.0, row)));
            }
        }
        Ok(None)
    }

    /// The row of the epoch that the plan's calls would use.
    async fn latest(&mut self) -> Result<Option<Effect>, Stop> {
        for _ in 0..crate::perform::EPOCHS_MAX {
            let row = self.row().await?;
            let named = |for_whom: &str| self.call.is_named(for_whom);
            let Some(epoch) = row.as_ref().and_then(|row| super::standing::later_epoch(row, named)) else {
                return Ok(row);
            };
            self.epoch = epoch;
            self.key = key_of(self.call, self.operation, &self.account, &self.resolved, epoch)?;
        }
        Err(Stop::Unsettled(Detail::Frozen))
    }
}
