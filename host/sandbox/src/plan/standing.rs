//! A plan and the ledger side by side: what became of each target, and what was done beside the plan.

use std::collections::HashSet;
use std::sync::Arc;

use oncegate_contract::Fingerprint;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Effects, Event, Ledger, PAGE_MAX};

use super::{Plan, PlanError, PlannedEffect};

/// Later epochs that are followed; more is a mistake.
const EPOCHS_MAX: u32 = 64;

/// What became of one effect of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Its row waits for the next run; nothing was sent.
    Approved,
    /// The ledger has no row for it; nothing was sent.
    NeverSent,
    /// It is under way, or a person decides first.
    Waiting,
    /// Nobody knows whether it happened.
    Unknown,
    /// Something contradicts it; an operator decides.
    Frozen,
    /// It happened or may have, with other values than the plan's.
    Mismatch,
    /// It exists and can never be completed.
    Stranded,
    /// It is proven that nothing happened.
    NoEffect,
    /// It is done.
    Done,
    /// It was done and undone again.
    Undone,
    /// It must not happen.
    Revoked,
    /// A later epoch takes its place, for somebody else.
    Superseded,
}

impl State {
    /// Every state, in the order in which they are told.
    pub const ALL: [State; 12] = [
        State::Approved,
        State::NeverSent,
        State::Waiting,
        State::Unknown,
        State::Frozen,
        State::Mismatch,
        State::Stranded,
        State::NoEffect,
        State::Done,
        State::Undone,
        State::Revoked,
        State::Superseded,
    ];

    /// The word that people read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::NeverSent => "never-sent",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
            Self::Frozen => "frozen",
            Self::Mismatch => "mismatch",
            Self::Stranded => "stranded",
            Self::NoEffect => "no-effect",
            Self::Done => "done",
            Self::Undone => "undone",
            Self::Revoked => "revoked",
            Self::Superseded => "superseded",
        }
    }

    /// Whether somebody has to do something before the plan is finished.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Done | Self::Undone | Self::Revoked | Self::Superseded)
    }

    /// Whether another call could bring it further.
    #[must_use]
    pub const fn can_run(self) -> bool {
        matches!(self, Self::Approved | Self::NeverSent | Self::Waiting | Self::Unknown | Self::NoEffect)
    }
}

/// One effect of a plan and its row.
#[derive(Debug, Clone)]
pub struct Line {
    /// The target's place in the plan.
    pub target: usize,
    /// What people see.
    pub label: String,
    /// The key of the epoch that counts.
    pub key: [u8; 32],
    /// What became of it.
    pub state: State,
    /// Why it is not done.
    pub why: Option<String>,
    /// Its row; none when there is none.
    pub row: Option<Effect>,
    /// The state of its row when the plan was frozen.
    pub before: Option<StateTag>,
}

/// An effect of the plan's owner and action that is not part of the plan.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Its key.
    pub key: [u8; 32],
    /// Its row.
    pub row: Effect,
}

/// How a plan stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its effects, target by target.
    pub lines: Vec<Line>,
    /// What was sent since the plan was frozen and is not part of it.
    pub outside: Vec<Outside>,
}

impl Standing {
    /// How many effects have come to that.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.lines.iter().filter(|line| line.state == state).count()
    }

    /// How many effects somebody has to do something for.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lines.iter().filter(|line| line.state.is_open()).count()
    }
}

/// Compares a plan with the ledger.
///
/// # Errors
/// [`PlanError`].
pub async fn standing(ledger: &Arc<dyn Ledger>, plan: &Plan) -> Result<Standing, PlanError> {
    let effects = Effects::new(Arc::clone(ledger));
    let mut lines = Vec::new();
    for (target, row) in plan.document.targets.iter().enumerate() {
        for effect in &row.effects {
            lines.push(line(&effects, plan, target, effect).await?);
        }
    }
    let outside = outside(&effects, plan).await?;
    Ok(Standing { lines, outside })
}

/// The epoch after this row's that a call of the plan would use.
pub(super) fn later_epoch(row: &Effect, named: impl Fn(&str) -> bool) -> Option<u32> {
    match &row.superseded_by {
        Some(supersession) => named(&supersession.for_whom).then_some(supersession.epoch),
        None if row.state == StateTag::Undone && !row.frozen => Some(row.epoch.saturating_add(1)),
        None => None,
    }
}

async fn line(effects: &Effects, plan: &Plan, target: usize, effect: &PlannedEffect) -> Result<Line, PlanError> {
    let mut key = effect.former.map_or_else(|| plan.key_at(effect, effect.epoch), Ok)?;
    let mut row = effects.get(key).await?;
    let named = |for_whom: &str| plan.is_named(for_whom);
    for _ in 0..EPOCHS_MAX {
        let Some(next) = row.as_ref().and_then(|row| later_epoch(row, named)) else { break };
        let later_key = plan.key_at(effect, next)?;
        let later = effects.get(later_key).await?;
        let undone = row.as_ref().is_some_and(|row| row.state == StateTag::Undone);
        // Undone and not done again: the plan did its part.
        if later.is_none() && undone {
            break;
        }
        (key, row) = (later_key, later);
    }
    let differing = row.as_ref().map(|row| differing(row, effect)).unwrap_or_default();
    let (state, why) = state(row.as_ref(), &differing);
    let row = row.map(Effect::without_bytes);
    Ok(Line { target, label: effect.label.clone(), key, state, why, row, before: effect.before })
}

/// The bound fields of which the row has other values than the plan.
fn differing(row: &Effect, effect: &PlannedEffect) -> Vec<String> {
    let Some((salt, fields)) = row.fingerprint().filter(|_| row.binds()) else { return Vec::new() };
    Fingerprint { salt: *salt, fields: fields.to_vec() }.differing(&effect.fields)
}

fn state(row: Option<&Effect>, differing: &[String]) -> (State, Option<String>) {
    let Some(row) = row else {
        return (State::NeverSent, Some("the ledger has no row for it; freeze the plan again, or run it".to_owned()));
    };
    let said = |state: State, why: &str| (state, Some(why.to_owned()));
    match row.state {
        StateTag::Undone => said(State::Undone, "it was done and undone again"),
        StateTag::Superseded => {
            let by = row.superseded_by.as_ref().map(|by| format!("epoch {} is for {}", by.epoch, by.for_whom));
            (State::Superseded, by)
        }
        _ if row.frozen => said(State::Frozen, "something contradicts it; an operator decides"),
        _ if !differing.is_empty() => {
            (State::Mismatch, Some(format!("its row has other values of {}", differing.join(", "))))
        }
        StateTag::Planned => said(State::Approved, "nothing was sent yet"),
        StateTag::AwaitingApproval if row.approved.is_some() => {
            said(State::Waiting, "a person approved the request; the next run sends it")
        }
        StateTag::AwaitingApproval => said(State::Waiting, "a person has to approve the request"),
        StateTag::Dispatched => said(State::Waiting, "it is being sent, or its sender has died"),
        StateTag::Responded => said(State::Waiting, "its answer is stored and not judged yet"),
        StateTag::Issued => said(State::Waiting, "it exists and is not final"),
        StateTag::Unknown => {
            (State::Unknown, Some(row.unknown_why.clone().unwrap_or_else(|| "nobody knows".to_owned())))
        }
        StateTag::Stranded => (State::Stranded, row.reason.clone()),
        StateTag::NoEffect => (State::NoEffect, row.reason.clone()),
        StateTag::Revoked => (State::Revoked, row.reason.clone()),
        StateTag::Done => (State::Done, None),
    }
}

/// Reads what was dispatched since the freeze, and keeps what is of the plan's kind and not of the plan.
async fn outside(effects: &Effects, plan: &Plan) -> Result<Vec<Outside>, PlanError> {
    let document = &plan.document;
    let mut from = plan.seq;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut ours = Ours { plan, epochs: vec![None; EPOCHS_MAX as usize] };
    loop {
        let page = effects.ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        for record in page {
            let Event::Dispatched(dispatch) = record.event else { continue };
            let same = dispatch.tenant == document.tenant && dispatch.owner == document.owner;
            let same = same && plan.acts(&dispatch.action);
            if !same || !seen.insert(record.stream.id) || ours.has(dispatch.epoch, &record.stream.id)? {
                continue;
            }
            if let Some(row) = effects.get(record.stream.id).await? {
                found.push(Outside { key: record.stream.id, row: row.without_bytes() });
            }
        }
    }
    Ok(found)
}

/// The plan's keys, epoch by epoch as they are asked for.
struct Ours<'a> {
    plan: &'a Plan,
    epochs: Vec<Option<HashSet<[u8; 32]>>>,
}

impl Ours<'_> {
    fn has(&mut self, epoch: u32, key: &[u8; 32]) -> Result<bool, PlanError> {
        let Some(known) = self.epochs.get_mut(epoch as usize) else { return Ok(false) };
        let keys = match known {
            Some(keys) => keys,
            None => {
                let effects = self.plan.document.targets.iter().flat_map(|row| &row.effects);
                let keys = effects.map(|effect| self.plan.key_at(effect, epoch)).collect::<Result<_, _>>()?;
                known.insert(keys)
            }
        };
        Ok(keys.contains(key))
    }
}
