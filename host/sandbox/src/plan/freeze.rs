//! Freezing: every target is resolved, then the plan is stored once, then its rows.
//!
//! The plan comes first: a process that dies among the rows leaves a plan that is whole, and freezing
//! it again writes those that are missing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use oncegate_ledger::state::StateTag;
use oncegate_ledger::{Append, EffectsError, Event, Expect, LedgerError, PAGE_MAX, Proposal, StreamId, effects};
use tokio::task::JoinSet;

use super::rehearse::Rehearsed;
use super::{
    DOCUMENT_BYTES_MAX, Document, EFFECTS_MAX, Plan, PlanError, PlannedEffect, Row, TARGETS_MAX, Target,
    arguments_digest,
};
use crate::attempt;
use crate::host::{Book, digest};
use crate::load::Loaded;
use crate::policy;
use crate::sandbox::Sandbox;

/// Targets that are resolved at once: enough to hide a provider's latency, few enough not to press it.
const AT_ONCE: usize = 8;
/// Rows stored in one commit.
const ROWS_PER_COMMIT: usize = 200;
const _: () = assert!(ROWS_PER_COMMIT <= PAGE_MAX, "no commit is larger than what one read returns");
/// Bytes of requests and fields stored in one commit.
const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Bytes of all requests of a plan: they are in memory until the plan is stored.
const REQUESTS_BYTES_MAX: usize = 256 << 20;
/// Lost races for one commit; each was won by somebody.
const RACES_MAX: usize = 20;

/// What shall be frozen.
#[derive(Debug, Clone)]
pub struct Freeze {
    /// The plan's name.
    pub plan: String,
    /// The tool that every target is a call of.
    pub tool: String,
    /// Facts from the orchestrator, the plan's name not among them.
    pub context: BTreeMap<String, String>,
    /// The targets.
    pub targets: Vec<Target>,
    /// Who freezes it.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// How far freezing has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many targets are resolved.
    Resolved(usize),
    /// The plan is stored, and so many of its rows.
    Stored(usize),
}

/// A frozen plan, and what freezing it found.
#[derive(Debug, Clone)]
pub struct Frozen {
    /// Its targets.
    pub targets: usize,
    /// Their effects.
    pub effects: usize,
    /// Rows that were written now.
    pub written: usize,
    /// The same plan was frozen before.
    pub again: bool,
    /// Rows that existed before the plan: they stay as they are.
    pub existing: Vec<Existing>,
    /// Targets of the list that are written there more than once.
    pub repeated: usize,
}

/// A row that existed before the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// What people see.
    pub label: String,
    /// Its state then.
    pub state: StateTag,
}

/// A target that cannot be part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Where it stands in the list.
    pub place: String,
    /// Why.
    pub why: String,
}

/// Why nothing was frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// The plan as a whole cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Some targets cannot be resolved; all of them are listed.
    #[error("{} of the targets cannot be frozen, so none is", .0.len())]
    Targets(Vec<Unresolved>),
    /// The name is taken by a plan with other content.
    #[error(
        "the plan {plan} is frozen already with other content: {what}; a frozen plan never changes, so freeze the new list under a new name"
    )]
    Differs {
        /// Its name.
        plan: String,
        /// In what it differs.
        what: String,
    },
    /// The plan that is there cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The ledger cannot be used.
    #[error("the ledger did not store the plan")]
    Ledger(#[from] LedgerError),
}

impl From<EffectsError> for FreezeError {
    fn from(error: EffectsError) -> Self {
        match error {
            EffectsError::Ledger(error) => Self::Ledger(error),
            EffectsError::Illegal(illegal) => Self::Invalid(illegal.to_string()),
        }
    }
}

impl Sandbox {
    /// Resolves every target and freezes them as a plan. The same again finishes what is missing.
    ///
    /// # Errors
    /// [`FreezeError`]. But for `Ledger`, nothing was stored.
    pub async fn freeze(
        &self,
        component: &Arc<Loaded>,
        freeze: Freeze,
        watch: &(dyn Fn(Step) + Send + Sync),
    ) -> Result<Frozen, FreezeError> {
        check(component, &freeze)?;
        let book = self.host.book().map_err(|stop| FreezeError::Invalid(stop.to_string()))?;
        let mut context = self.with_tenant(component, freeze.context.clone());
        let facts = context.clone();
        context.insert("plan".to_owned(), freeze.plan.clone());
        let rehearsed = self.rehearse_all(component, &freeze, &Arc::new(context), watch).await?;
        let Joined { rows, proposals, repeated } = join(rehearsed)?;
        let description = &component.description;
        let owned = policy::owner(self.policy(), &description.digest, &description.contract.component.name);
        let owned = owned.map_err(|denied| FreezeError::Invalid(denied.for_operator().to_owned()))?;
        let document = Document {
            plan: freeze.plan,
            tool: freeze.tool,
            owner: owned.owner,
            tenant: facts.get("tenant").cloned().unwrap_or_default(),
            context: facts,
            component: description.digest,
            contract: description.contract.digest(),
            reason: freeze.reason,
            targets: rows,
        };
        let again = self.store(book, component, &document, freeze.actor).await?;
        watch(Step::Stored(0));
        let written = write_rows(book, proposals, watch).await?;
        let effects = || document.targets.iter().flat_map(|row| &row.effects);
        let existing = effects().filter_map(|effect| {
            let state = effect.before.filter(|state| !again || *state != StateTag::Planned)?;
            Some(Existing { label: effect.label.clone(), state })
        });
        Ok(Frozen {
            targets: document.targets.len(),
            effects: effects().count(),
            written,
            again,
            existing: existing.collect(),
            repeated,
        })
    }

    /// All targets, or all that is wrong with them.
    async fn rehearse_all(
        &self,
        component: &Arc<Loaded>,
        freeze: &Freeze,
        context: &Arc<BTreeMap<String, String>>,
        watch: &(dyn Fn(Step) + Send + Sync),
    ) -> Result<Vec<Rehearsed>, FreezeError> {
        let mut waiting = freeze.targets.iter().cloned().enumerate();
        let mut running = JoinSet::new();
        let mut resolved = Vec::new();
        let mut failed = Vec::new();
        loop {
            while running.len() < AT_ONCE
                && let Some((index, target)) = waiting.next()
            {
                let (sandbox, component) = (self.clone(), Arc::clone(component));
                let (tool, context) = (freeze.tool.clone(), Arc::clone(context));
                let place = target.place.clone();
                running.spawn(async move {
                    let rehearsed = sandbox.rehearse(&component, &tool, &context, target).await;
                    (index, rehearsed.map_err(|why| Unresolved { place, why }))
                });
            }
            let Some(joined) = running.join_next().await else { break };
            let (index, rehearsed) = joined.map_err(|error| FreezeError::Invalid(error.to_string()))?;
            match rehearsed {
                Ok(rehearsed) => resolved.push((index, rehearsed)),
                Err(unresolved) => failed.push((index, unresolved)),
            }
            watch(Step::Resolved(resolved.len() + failed.len()));
        }
        if failed.is_empty() {
            resolved.sort_by_key(|(index, _)| *index);
            return Ok(resolved.into_iter().map(|(_, rehearsed)| rehearsed).collect());
        }
        failed.sort_by_key(|(index, _)| *index);
        Err(FreezeError::Targets(failed.into_iter().map(|(_, unresolved)| unresolved).collect()))
    }

    /// Stores the plan with the contract that it is read by; true when the same one was there.
    async fn store(
        &self,
        book: &Book,
        component: &Loaded,
        document: &Document,
        actor: String,
    ) -> Result<bool, FreezeError> {
        for _ in 0..RACES_MAX {
            if let Some(plan) = Plan::read(&*book.effects.ledger, &document.plan).await? {
                return match difference(&plan.document, document) {
                    None => Ok(true),
                    Some(what) => Err(FreezeError::Differs { plan: document.plan.clone(), what }),
                };
            }
            let mut batch = Vec::new();
            let seen = attempt::contract_seen(&self.host, book, &component.description.contract, &mut batch).await;
            seen.map_err(|stop| FreezeError::Invalid(stop.to_string()))?;
            batch.push(frozen(document, actor.clone(), (self.host.now)())?);
            match book.effects.ledger.append(batch).await {
                Ok(_) => return Ok(false),
                Err(LedgerError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(FreezeError::Invalid("others froze at the same time; try again".to_owned()))
    }
}

fn check(component: &Loaded, freeze: &Freeze) -> Result<(), FreezeError> {
    let invalid = |why: String| Err(FreezeError::Invalid(why));
    if freeze.plan.is_empty() || oncegate_contract::safe_text(&freeze.plan) != freeze.plan {
        return invalid("a plan's name has letters, digits and ._:@+- and at most 200 of them".to_owned());
    }
    let Some((_, tool)) = component.tool(&freeze.tool) else {
        return invalid(format!("there is no tool {}", oncegate_contract::safe_text(&freeze.tool)));
    };
    if !tool.acts() {
        return invalid(format!("the tool {} has no effects, so there is nothing to plan", tool.name));
    }
    match freeze.targets.len() {
        0 => invalid("there are no targets".to_owned()),
        count if count > TARGETS_MAX => {
            invalid(format!("there are {count} targets, and a plan has at most {TARGETS_MAX}; make several plans"))
        }
        _ => Ok(()),
    }
}

fn frozen(document: &Document, actor: String, at: u64) -> Result<Append, FreezeError> {
    let bytes = attempt::encode(document);
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let size = bytes.len();
        return Err(FreezeError::Invalid(format!(
            "the plan has {size} bytes, and at most {DOCUMENT_BYTES_MAX} are kept; make several plans"
        )));
    }
    let effects = document.targets.iter().flat_map(|row| &row.effects).map(|effect| effect.key).collect();
    let parent = document.context.get("parent").map(|parent| StreamId::parent(&document.tenant, parent).id);
    let event = Event::PlanFrozen { plan: document.plan.clone(), effects, document: bytes.into(), actor, at, parent };
    Ok(Append::new(Plan::stream(&document.plan), Expect::Version(0), event))
}

/// The list as a plan has it: each target once, each effect in one target.
struct Joined {
    rows: Vec<Row>,
    proposals: Vec<([u8; 32], Proposal)>,
    repeated: usize,
}

fn join(rehearsed: Vec<Rehearsed>) -> Result<Joined, FreezeError> {
    let mut joined = Joined { rows: Vec::new(), proposals: Vec::new(), repeated: 0 };
    let mut owners: HashMap<[u8; 32], (String, [u8; 32])> = HashMap::new();
    let mut arguments: HashMap<[u8; 32], (String, [u8; 32])> = HashMap::new();
    let mut refused = Vec::new();
    let mut request_bytes = 0_u64;
    for Rehearsed { place, arguments: given, values, noted } in rehearsed {
        let effects = noted.iter().map(|noted| noted.effect.clone()).collect();
        let row = Row { arguments: given, values, effects };
        let content = content(&row);
        let same_arguments = arguments.get(&arguments_digest(&row.arguments));
        let same_effect = row.effects.iter().find_map(|effect| owners.get(&effect.key).map(|owner| (effect, owner)));
        let why = match (same_arguments, same_effect) {
            (Some((_, other)), _) | (None, Some((_, (_, other)))) if *other == content => {
                joined.repeated += 1;
                continue;
            }
            (_, Some((effect, (first, _)))) => Some(format!("{} is the effect of {first} already", effect.label)),
            (Some((first, _)), None) => Some(format!("it has the arguments of {first} and other values")),
            (None, None) => None,
        };
        if let Some(why) = why {
            refused.push(Unresolved { place, why });
            continue;
        }
        arguments.insert(arguments_digest(&row.arguments), (place.clone(), content));
        owners.extend(row.effects.iter().map(|effect| (effect.key, (place.clone(), content))));
        for noted in noted {
            let Some(proposal) = noted.proposal else { continue };
            request_bytes += proposal.request.len() + proposal.fields.len();
            joined.proposals.push((noted.key, proposal));
        }
        joined.rows.push(row);
    }
    let effects: usize = joined.rows.iter().map(|row| row.effects.len()).sum();
    if !refused.is_empty() {
        Err(FreezeError::Targets(refused))
    } else if effects > EFFECTS_MAX || request_bytes > REQUESTS_BYTES_MAX as u64 {
        Err(FreezeError::Invalid(format!(
            "the targets have {effects} effects with {request_bytes} bytes of requests, and a plan has at most \
             {EFFECTS_MAX} with {REQUESTS_BYTES_MAX}; make several plans"
        )))
    } else {
        Ok(joined)
    }
}

/// What a target is, whatever its rows have come to.
fn content(row: &Row) -> [u8; 32] {
    let effects: Vec<Vec<u8>> = row.effects.iter().map(|effect| attempt::encode(&timeless(effect))).collect();
    let mut parts = vec![row.arguments.to_string().into_bytes(), attempt::encode(&row.values)];
    parts.extend(effects);
    digest(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn timeless(effect: &PlannedEffect) -> PlannedEffect {
    PlannedEffect { epoch: 0, former: None, before: None, ..effect.clone() }
}

/// In what two documents of one name differ; none when they are the same plan.
fn difference(stored: &Document, now: &Document) -> Option<String> {
    let heads = [
        ("its tool", stored.tool != now.tool),
        ("its tenant", stored.tenant != now.tenant),
        ("its context", stored.context != now.context),
        ("its component's contract", stored.owner != now.owner || stored.contract != now.contract),
    ];
    if let Some((what, _)) = heads.into_iter().find(|(_, differs)| *differs) {
        return Some(format!("{what} is another"));
    }
    let contents = |document: &Document| document.targets.iter().map(content).collect::<HashSet<_>>();
    let (before, after) = (contents(stored), contents(now));
    let (gone, new) = (before.difference(&after).count(), after.difference(&before).count());
    (gone + new > 0).then(|| format!("{new} of its targets are new or changed, {gone} are gone or were different"))
}

/// Writes the rows that do not exist, a bounded batch at a time.
async fn write_rows(
    book: &Book,
    proposals: Vec<([u8; 32], Proposal)>,
    watch: &(dyn Fn(Step) + Send + Sync),
) -> Result<usize, FreezeError> {
    let mut written = 0;
    let mut waiting = proposals.into_iter().peekable();
    while waiting.peek().is_some() {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < ROWS_PER_COMMIT
            && bytes < COMMIT_BYTES_MAX as u64
            && let Some((key, proposal)) = waiting.next()
        {
            bytes += proposal.request.len() + proposal.fields.len();
            batch.push((key, proposal));
        }
        written += write_batch(book, &batch).await?;
        watch(Step::Stored(written));
    }
    Ok(written)
}

/// Rows that others wrote in between stay as they are.
async fn write_batch(book: &Book, rows: &[([u8; 32], Proposal)]) -> Result<usize, FreezeError> {
    for _ in 0..RACES_MAX {
        let mut batch = Vec::new();
        for (key, proposal) in rows {
            if book.effects.get(*key).await?.is_none() {
                let event = Event::Planned(Box::new(proposal.clone()));
                batch.push(effects::step(*key, None, event).map_err(EffectsError::from)?.0);
            }
        }
        if batch.is_empty() {
            return Ok(0);
        }
        let count = batch.len();
        match book.effects.ledger.append(batch).await {
            Ok(_) => return Ok(count),
            Err(LedgerError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(FreezeError::Invalid("others write the same rows; freeze again to finish".to_owned()))
}
