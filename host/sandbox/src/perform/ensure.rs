//! `ensure`: what exists already is found, not made.

use std::sync::Arc;

use oncegate_contract::Matches;
use oncegate_ledger::state::Effect;
use oncegate_ledger::{EffectsError, Event, SettleVerdict, Ties};

use super::{Step, Wanted, attempt_stop, ledger_stop};
use crate::attempt;
use crate::call::{Asked, denied};
use crate::outcome::Detail;
use crate::policy::Grant;
use crate::settle::{self, Rule, Seen, Sought};
use crate::stop::Stop;

impl Wanted<'_> {
    /// Runs the settle lookup before anything was ever sent for the key. Gives the step that it led to;
    /// none when the effect is not there and may be dispatched.
    pub(super) async fn ensure(
        &self,
        grant: &Grant,
        row: Option<&Effect>,
        asked: &mut Asked,
    ) -> Result<Option<Step>, Stop> {
        if !self.operation.ensure || row.is_some_and(|row| !row.attempts.is_empty()) {
            return Ok(None);
        }
        let settle = self.operation.settle.as_ref();
        if let Some(lookup) = settle.and_then(|settle| self.call.contract().operations.get(&settle.operation)) {
            self.call.grant(lookup).map_err(denied)?;
        }
        settle::judge_leftovers(&self.call.host, self.book, self.key.0).await.map_err(attempt_stop)?;
        let seen = self.rule(row)?.look().await.map_err(attempt_stop)?;
        let seen = seen.map_err(|why| self.not_told(&why))?;
        let verdict = match seen.matches.clone() {
            Matches::Absent => return Ok(None),
            Matches::Undetermined { why } => return Err(self.not_told(&why)),
            Matches::One { receipt, mismatched } => SettleVerdict::One { receipt, mismatched },
            Matches::Many { receipts } => SettleVerdict::Many { receipts },
        };
        match self.write_down(grant, row, verdict, seen).await? {
            Ok(()) => {
                // It was there before this call, whoever made it.
                asked.before = Some(true);
                self.call.forget(&self.key.0);
                Ok(Some(Step::Again))
            }
            Err(error) if error.is_conflict() => Ok(Some(Step::Raced)),
            Err(error) => Err(ledger_stop(error)),
        }
    }

    /// A row that was never dispatched, with what the lookup found.
    async fn write_down(
        &self,
        grant: &Grant,
        row: Option<&Effect>,
        verdict: SettleVerdict,
        seen: Seen,
    ) -> Result<Result<(), EffectsError>, Stop> {
        let mut also = self.bindings(grant).await?;
        also.extend(self.formers_unchanged());
        also.extend(self.pinning());
        also.extend(seen.guard);
        attempt::recorded(self, &mut also).await?;
        let at = (self.call.host.now)();
        let evidence = seen.found.raw.into();
        let settled = Event::Settled { at, by: "ensure".to_owned(), verdict, evidence };
        let effects = &self.book.effects;
        // What was found has this call's values: a row that waits with others, or before it had its
        // purposes, would tell of what nobody found.
        let begins = match row {
            None => Event::Planned,
            Some(row) if row.waiting().is_some() => Event::Amended,
            Some(row) => {
                return Ok(effects.advance(self.key.0, Some(row), settled, also).await.map(|_| ()));
            }
        };
        let ties = Ties { claims: self.purposes(grant)?, ..self.ties() };
        let (mut proposal, _) = attempt::propose(self, grant, row, ties)?;
        proposal.plan = row.and_then(|row| row.waiting()?.plan.clone());
        let first = begins(Box::new(proposal));
        Ok(effects.advance_twice(self.key.0, row, first, Some(settled), also).await.map(|_| ()))
    }

    fn rule(&self, row: Option<&Effect>) -> Result<Rule<'_>, Stop> {
        let contract = self.call.contract();
        Ok(Rule {
            host: &self.call.host,
            book: self.book,
            contract: Arc::new(contract.clone()),
            component: self.call.component.description.digest,
            sought: Sought {
                key: self.key.0,
                tenant: self.call.tenant().to_owned(),
                account: self.account.clone(),
                owner: self.call.owner()?.owner,
                operation: self.operation.name.clone(),
                downstream_key: attempt::downstream_key(self, row),
                resolved: self.resolved.clone(),
            },
        })
    }

    /// A guess would be a second effect or none: nothing is sent.
    fn not_told(&self, why: &str) -> Stop {
        let label = oncegate_contract::label(self.operation, &self.resolved);
        tracing::warn!(%label, %why, "whether it exists already cannot be told, so nothing was sent");
        Stop::Unsettled(Detail::Unknown)
    }
}
