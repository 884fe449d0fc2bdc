//! One settle rule on one effect: the lookup, its candidates, whose they are, and when none is proof.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::{Contract, Matches, Operation, Resolved};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Dispatch, EffectsError, SettleVerdict, StreamId, StreamKind};
use tokio::time::sleep;

use super::Patience;
use super::receipts::{self, Owner};
use crate::attempt::{AttemptError, decode};
use crate::host::{Book, Host};
use crate::limits::LOOKUP_BYTES_MAX;
use crate::lookup::{self, Found};
use crate::policy;

/// Looks that must agree before something is absent.
const LOOKS_MIN: u32 = 2;
/// Between two looks, so that they do not see the same moment.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// How long a call may wait for `absent-after`; an operator's run waits as long as it takes.
const BRIEF_WAIT_MAX: Duration = Duration::from_secs(2);
/// Rows that are tried as a known object for the positive control.
const CONTROLS_MAX: usize = 5;
/// Rows looked at in one page.
const PAGE: usize = 256;

/// The effect that is looked for.
pub(crate) struct Sought {
    pub(crate) key: [u8; 32],
    pub(crate) tenant: String,
    pub(crate) account: String,
    pub(crate) owner: String,
    pub(crate) operation: String,
    pub(crate) downstream_key: String,
    pub(crate) resolved: Resolved,
}

/// Everything a look needs.
pub(crate) struct Rule<'a> {
    pub(crate) host: &'a Host,
    pub(crate) book: &'a Book,
    pub(crate) contract: Arc<Contract>,
    pub(crate) component: [u8; 32],
    pub(crate) sought: Sought,
}

/// What a look showed.
pub(crate) struct Seen {
    pub(crate) matches: Matches,
    pub(crate) found: Found,
    /// That the one object found still is nobody else's.
    pub(crate) guard: Option<Append>,
    /// After this long the same answer says more.
    pub(crate) wait: Option<Duration>,
}

/// Whose the objects are that a look found.
#[derive(Default)]
struct Sorted {
    taken: Vec<String>,
    guards: BTreeMap<String, Append>,
    unclear: Option<&'static str>,
    wait: Option<Duration>,
}

impl Rule<'_> {
    fn operation(&self) -> Result<&Operation, String> {
        self.contract
            .operations
            .get(&self.sought.operation)
            .ok_or_else(|| "its contract has no such operation".to_owned())
    }

    /// One look: the candidates that are this effect and no other one's.
    pub(crate) async fn look(&self) -> Result<Result<Seen, String>, AttemptError> {
        let Sought { resolved, downstream_key, .. } = &self.sought;
        let (matches, found) = match self.ask(resolved, downstream_key).await {
            Ok(seen) => seen,
            Err(why) => return Ok(Err(why)),
        };
        let shown = match &matches {
            Matches::One { receipt, .. } => vec![receipt.clone()],
            Matches::Many { receipts } => receipts.clone(),
            Matches::Absent | Matches::Undetermined { .. } => Vec::new(),
        };
        let mut sorted = self.sort(&shown).await?;
        let matches = match sorted.unclear {
            Some(why) => Ok(Matches::Undetermined { why: why.to_owned() }),
            None if sorted.taken.is_empty() => Ok(matches),
            None => self.judge(resolved, downstream_key, &sorted.taken, &found),
        };
        Ok(matches.map(|matches| {
            let guard = match &matches {
                Matches::One { receipt, .. } => sorted.guards.remove(receipt),
                _ => None,
            };
            Seen { matches, found, guard, wait: sorted.wait }
        }))
    }

    /// Tells objects of other effects from those that may be this one.
    async fn sort(&self, receipts: &[String]) -> Result<Sorted, AttemptError> {
        let mut sorted = Sorted::default();
        let Ok(operation) = self.operation() else { return Ok(sorted) };
        let referenced = operation.reference.is_some();
        for receipt in receipts {
            let Sought { key, account, .. } = &self.sought;
            let owned = receipts::owner(self.host, self.book, *key, account, operation, receipt).await?;
            match owned.owner {
                Owner::Nobody => {}
                // What was removed shows for as long as the index lags; a reference is this epoch's alone.
                Owner::Undone(_) if referenced => {}
                Owner::Undone(by) => {
                    let left = self.lag_left(operation, by);
                    if left != Some(Duration::ZERO) {
                        sorted.unclear = Some("what was found may be the one that was undone");
                        sorted.wait = left;
                    }
                }
                Owner::SamePath if !referenced => sorted.taken.push(receipt.clone()),
                // It was found by a reference that is this effect's alone: no absence.
                Owner::SamePath => sorted.unclear = Some("what was found has another effect's identifier"),
                // An identifier may be unique per kind only: no absence either.
                Owner::OtherPath => {
                    sorted.unclear = Some("what was found has the identifier of another kind of effect");
                }
            }
            sorted.guards.extend(owned.guard.map(|guard| (receipt.clone(), guard)));
        }
        Ok(sorted)
    }

    /// How long an object that was undone may still show; none where the contract does not say.
    fn lag_left(&self, operation: &Operation, undone: [u8; 32]) -> Option<Duration> {
        let lag = operation.settle.as_ref()?.absent_after?;
        Some(lag.saturating_sub(self.host.undone_for(undone)))
    }

    /// Runs the settle lookup for one effect's fields.
    async fn ask(&self, resolved: &Resolved, downstream_key: &str) -> Result<(Matches, Found), String> {
        let operation = self.operation()?;
        let settle = operation.settle.as_ref().ok_or("its contract has no settle rule")?;
        let lookup = self.contract.operations.get(&settle.operation).ok_or("its settle lookup does not exist")?;
        let tenant = &self.sought.tenant;
        let values = oncegate_contract::settle_fields(operation, resolved, downstream_key);
        let context = BTreeMap::from([("tenant".to_owned(), tenant.clone())]);
        let fields = oncegate_contract::resolve_host(lookup, &context, &values).map_err(|error| error.to_string())?;
        let grant = policy::decide(&self.host.policy, &self.contract, &self.component, tenant, &lookup.name)
            .map_err(|denied| format!("the settle lookup is not permitted: {}", denied.for_operator()))?
            .staying();
        let found = lookup::send(self.host, lookup, &grant, &fields, tenant, LOOKUP_BYTES_MAX)
            .await
            .map_err(|stop| stop.to_string())?;
        let matches = self.judge(resolved, downstream_key, &[], &found)?;
        Ok((matches, found))
    }

    fn judge(
        &self,
        resolved: &Resolved,
        downstream_key: &str,
        taken: &[String],
        found: &Found,
    ) -> Result<Matches, String> {
        let operation = self.operation()?;
        let lookup = operation
            .settle
            .as_ref()
            .and_then(|settle| self.contract.operations.get(&settle.operation))
            .ok_or("no settle lookup")?;
        Ok(oncegate_contract::match_candidates(operation, lookup, resolved, downstream_key, &found.answer, taken))
    }

    /// Absent, under all of rule 4; or why that cannot be said.
    pub(super) async fn absent(
        &self,
        row: &Effect,
        patience: Patience,
    ) -> Result<Result<SettleVerdict, String>, AttemptError> {
        let after = match self.operation() {
            Ok(operation) => operation.settle.as_ref().and_then(|settle| settle.absent_after),
            Err(why) => return Ok(Err(why)),
        };
        let Some(after) = after else {
            return Ok(Err("it was not found, and the contract does not say when that proves anything".to_owned()));
        };
        let Some(stopped_for) = self.host.stopped_for(self.book, row) else {
            return Ok(Err("it was not found, but its sender is not known to have stopped".to_owned()));
        };
        let wait = after.saturating_sub(stopped_for);
        if patience == Patience::Brief && wait > BRIEF_WAIT_MAX {
            return Ok(Err(format!("it was not found yet; that proves something in {} s", wait.as_secs() + 1)));
        }
        sleep(wait).await;
        for look in 0..LOOKS_MIN {
            if look > 0 {
                sleep(LOOK_PAUSE).await;
            }
            match self.look().await? {
                Ok(Seen { matches: Matches::Absent, .. }) => {}
                Ok(_) => return Ok(Err("it was not found at first, then it was".to_owned())),
                Err(why) => return Ok(Err(why)),
            }
        }
        let Some(control) = self.control().await? else {
            return Ok(Err("it was not found, but neither was any object that is known to exist".to_owned()));
        };
        let since = self.host.stopped_for(self.book, row).unwrap_or(stopped_for);
        let since_stop_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Ok(Ok(SettleVerdict::Absent { since_stop_ms, looks: LOOKS_MIN, control }))
    }

    /// A known object that the same lookup finds: without it, "not found" may mean "cannot see".
    async fn control(&self) -> Result<Option<String>, AttemptError> {
        let ledger = &self.book.effects.ledger;
        let mut tried = 0;
        let mut after = None;
        while tried < CONTROLS_MAX {
            let page = ledger.list(StateTag::Done, after, PAGE).await.map_err(EffectsError::from)?;
            let Some(last) = page.last().copied() else { break };
            after = Some(last);
            for id in page {
                let Some(row) = self.sibling(id).await? else { continue };
                let (Some(dispatch), Some(receipt)) = (row.dispatch.as_deref(), &row.receipt) else { continue };
                tried += 1;
                let stored = match ledger.load(&dispatch.fields).await {
                    Ok(stored) => stored,
                    // What was erased is no object to try.
                    Err(error) if error.withholds_bytes() => continue,
                    Err(error) => return Err(EffectsError::from(error).into()),
                };
                let resolved: Resolved = decode(&stored)?;
                if let Ok((Matches::One { receipt: seen, .. }, _)) = self.ask(&resolved, &dispatch.downstream_key).await
                    && seen == *receipt
                {
                    return Ok(Some(seen));
                }
                if tried >= CONTROLS_MAX {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Another row of the same operation at the same account: what the settle lookup can be tried on.
    async fn sibling(&self, id: StreamId) -> Result<Option<Effect>, AttemptError> {
        if id.kind != StreamKind::Effect || id.id == self.sought.key {
            return Ok(None);
        }
        let ours = &self.sought;
        let same = |other: &Dispatch| {
            (&other.tenant, &other.owner, &other.operation, &other.account)
                == (&ours.tenant, &ours.owner, &ours.operation, &ours.account)
        };
        let row = self.book.effects.get(id.id).await.map_err(EffectsError::from)?;
        Ok(row.filter(|row| row.dispatch.as_deref().is_some_and(same)))
    }
}
