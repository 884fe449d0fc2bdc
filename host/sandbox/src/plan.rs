//! Frozen plans: what was approved before the first effect, target by target, with keys and values.
//!
//! [`Sandbox::freeze`](crate::Sandbox::freeze) makes one, [`Plan::read`] reads it back, [`standing`]
//! compares it with the ledger. A frozen plan never changes.

mod freeze;
mod rehearse;
mod source;
mod standing;

use std::collections::{BTreeMap, HashMap};

use oncegate_contract::{Contract, Owner, Resolved, Value};
use oncegate_ledger::{Event, Ledger, LedgerError, StateTag, StreamId, StreamKind};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::host::{digest, stream};

pub use freeze::{Existing, Freeze, FreezeError, Frozen, Step, Unresolved};
pub(crate) use rehearse::Rehearsal;
pub(crate) use source::PlanSource;
pub use standing::{Line, Outside, Standing, State, standing};

/// Targets of one plan: a person has to be able to look at them.
pub const TARGETS_MAX: usize = 10_000;
/// Effects of all targets of one plan.
pub const EFFECTS_MAX: usize = 20_000;
/// Bytes of a plan's document; it reaches the process that owns the ledger in one message.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// One line of a target list: a call that shall be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Where it stands in the list, for messages.
    pub place: String,
    /// The tool's arguments.
    pub arguments: Json,
    /// Values of the fields that the contract takes from the plan.
    pub values: BTreeMap<String, Value>,
}

/// What was frozen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The plan's name.
    pub plan: String,
    /// The tool that every target is a call of.
    pub tool: String,
    /// The owner of the effects: the contract's name.
    pub owner: String,
    /// For whom.
    pub tenant: String,
    /// The facts that it was frozen with, and is run with.
    pub context: BTreeMap<String, String>,
    /// The component that resolved the targets.
    #[serde(with = "digits")]
    pub component: [u8; 32],
    /// Its contract.
    #[serde(with = "digits")]
    pub contract: [u8; 32],
    /// Why.
    pub reason: String,
    /// The targets, in the order of the list.
    pub targets: Vec<Row>,
}

/// One target, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The tool's arguments in their canonical form.
    pub arguments: Json,
    /// What the list gives for fields from the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,
    /// The effects that the tool asked for.
    pub effects: Vec<PlannedEffect>,
}

/// One effect of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedEffect {
    /// Its key at epoch 0: the same at whatever epoch it is performed.
    #[serde(with = "digits")]
    pub key: [u8; 32],
    /// The epoch that was in force.
    pub epoch: u32,
    /// The key of the row that an earlier recipe made and that answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<[u8; 32]>,
    /// The operation.
    pub operation: String,
    /// The provider account.
    pub account: String,
    /// The digest of how the key is made.
    #[serde(with = "digits")]
    pub recipe: [u8; 32],
    /// What people see.
    pub label: String,
    /// Key parts and bound fields, as they are to be sent.
    pub fields: Resolved,
    /// The state of the row that existed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<StateTag>,
}

impl PlannedEffect {
    /// The bound fields of which a call has other values.
    pub(crate) fn differing(&self, now: &Resolved) -> Vec<String> {
        // The salt only has to be the same on both sides.
        oncegate_contract::fingerprint(&self.fields, [0; 16]).differing(now)
    }
}

/// Why a plan cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PlanError {
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What is stored is not what this program writes.
    #[error("the plan {plan} cannot be read: {why}")]
    Unreadable {
        /// Its name.
        plan: String,
        /// What is wrong.
        why: String,
    },
}

/// A frozen plan as the ledger has it, with what finds its targets.
#[derive(Debug)]
pub struct Plan {
    /// What was frozen.
    pub document: Document,
    /// Who froze it.
    pub actor: String,
    /// When, in milliseconds since the Unix epoch.
    pub at: u64,
    /// Its place in the ledger.
    pub seq: u64,
    contract: Contract,
    effects: HashMap<[u8; 32], (usize, usize)>,
    arguments: HashMap<[u8; 32], usize>,
}

impl Plan {
    /// The stream of a plan.
    pub(crate) fn stream(plan: &str) -> StreamId {
        stream(StreamKind::Plan, &[plan.as_bytes()])
    }

    /// Reads a plan; none when nothing was frozen under that name.
    ///
    /// # Errors
    /// [`PlanError`].
    pub async fn read(ledger: &dyn Ledger, plan: &str) -> Result<Option<Self>, PlanError> {
        let records = ledger.read(Self::stream(plan)).await?;
        let Some(record) = records.into_iter().next() else { return Ok(None) };
        let unreadable = |why: String| PlanError::Unreadable { plan: oncegate_contract::safe_text(plan), why };
        let Event::PlanFrozen { document, actor, at, .. } = record.event else {
            return Err(unreadable("its stream holds something else".to_owned()));
        };
        let bytes = ledger.load(&document).await?;
        let document: Document = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let contract = contract(ledger, document.contract).await?.map_err(unreadable)?;
        Ok(Some(Self::indexed(document, contract, actor, at, record.seq)))
    }

    fn indexed(document: Document, contract: Contract, actor: String, at: u64, seq: u64) -> Self {
        let rows = document.targets.iter().enumerate();
        let arguments = rows.clone().map(|(index, row)| (arguments_digest(&row.arguments), index)).collect();
        let effects = rows.flat_map(|(target, row)| {
            row.effects.iter().enumerate().map(move |(index, effect)| (effect.key, (target, index)))
        });
        let effects = effects.collect();
        Self { document, actor, at, seq, contract, effects, arguments }
    }

    /// The effect with this key of epoch 0, if it is part of the plan.
    #[must_use]
    pub fn effect(&self, key: &[u8; 32]) -> Option<&PlannedEffect> {
        let (target, index) = self.effects.get(key)?;
        self.document.targets.get(*target)?.effects.get(*index)
    }

    /// The plan's values for a call with these canonical arguments; none when it has no such target.
    pub(crate) fn values(&self, tool: &str, arguments: &Json) -> Option<&BTreeMap<String, Value>> {
        let index = self.arguments.get(&arguments_digest(arguments)).filter(|_| self.document.tool == tool)?;
        self.document.targets.get(*index).map(|row| &row.values)
    }

    /// The key of an effect at an epoch.
    pub(crate) fn key_at(&self, effect: &PlannedEffect, epoch: u32) -> Result<[u8; 32], PlanError> {
        if epoch == 0 {
            return Ok(effect.key);
        }
        let unreadable = |why: String| PlanError::Unreadable { plan: self.document.plan.clone(), why };
        let operation = self.contract.operations.get(&effect.operation);
        let operation = operation.ok_or_else(|| unreadable(format!("its contract has no {}", effect.operation)))?;
        let Document { tenant, owner, .. } = &self.document;
        let owner = Owner { tenant, account: &effect.account, owner };
        let key = oncegate_contract::effect_key(operation, &owner, &effect.fields, epoch);
        key.map(|key| key.0).map_err(|error| unreadable(error.to_string()))
    }

    /// Whether an operator's decision names the plan's calls.
    pub(crate) fn is_named(&self, for_whom: &str) -> bool {
        match for_whom.split_once(':') {
            Some(("plan", id)) => self.document.plan == id,
            Some(("run", id)) => self.document.context.get("run").is_some_and(|run| run == id),
            _ => false,
        }
    }

    /// Whether one of its effects is of that action.
    pub(crate) fn acts(&self, action: &str) -> bool {
        let named = |operation: &str| self.contract.operations.get(operation).and_then(|one| one.action.as_deref());
        self.document.targets.iter().flat_map(|row| &row.effects).any(|effect| named(&effect.operation) == Some(action))
    }
}

pub(crate) fn arguments_digest(arguments: &Json) -> [u8; 32] {
    digest(&[arguments.to_string().as_bytes()])
}

async fn contract(ledger: &dyn Ledger, digest: [u8; 32]) -> Result<Result<Contract, String>, LedgerError> {
    let records = ledger.read(StreamId { kind: StreamKind::Contract, id: digest }).await?;
    let text = records.into_iter().find_map(|record| match record.event {
        Event::ContractSeen { text, digest: stored } if stored == digest => Some(text),
        _ => None,
    });
    let Some(text) = text else { return Ok(Err("its contract is not in the ledger".to_owned())) };
    Ok(Contract::parse("the ledger's contract", &text).map_err(|errors| errors.to_string()))
}

/// Digests as hexadecimal digits: lists of numbers take three times the room.
mod digits {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(digest: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(|| D::Error::custom("not a digest"))?;
        let byte = |at: usize| digits.get(at * 2).zip(digits.get(at * 2 + 1)).map(|(high, low)| high << 4 | low);
        Ok(std::array::from_fn(|at| byte(at).unwrap_or_default()))
    }
}
