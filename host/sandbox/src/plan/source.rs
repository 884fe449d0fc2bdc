//! The plan that a call takes values from: a frozen one, or the target that is being frozen.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncegate_contract::{Operation, Source, Value};
use serde_json::Value as Json;

use super::{Plan, Rehearsal};
use crate::stop::Stop;

static NO_VALUES: BTreeMap<String, Value> = BTreeMap::new();

/// What a call has to do with plans.
pub(crate) enum PlanSource {
    /// The orchestrator named none.
    None,
    /// It named this one, or one that cannot be used.
    Frozen(Result<Arc<Plan>, Stop>),
    /// Nothing is sent: what the guest asks for becomes part of a plan.
    Rehearsal(Rehearsal),
}

impl PlanSource {
    /// The plan's values for the fields of an operation that take theirs from it.
    pub(crate) fn values(
        &self,
        tool: &str,
        arguments: &Json,
        operation: &Operation,
    ) -> Result<&BTreeMap<String, Value>, Stop> {
        if !operation.fields.iter().any(|field| field.source == Source::Plan) {
            return Ok(&NO_VALUES);
        }
        match self {
            Self::None => Ok(&NO_VALUES),
            Self::Frozen(Err(stop)) => Err(stop.clone()),
            Self::Frozen(Ok(plan)) => plan.values(tool, arguments).ok_or_else(|| {
                Stop::PlanMismatch("The plan has no target with these arguments; nothing was sent.".to_owned())
            }),
            Self::Rehearsal(rehearsal) => Ok(rehearsal.values()),
        }
    }

    /// The rehearsal that this call is, if it is one.
    pub(crate) fn rehearsal(&self) -> Option<&Rehearsal> {
        match self {
            Self::Rehearsal(rehearsal) => Some(rehearsal),
            _ => None,
        }
    }

    /// The frozen plan that it was named; a rehearsal has none yet.
    pub(crate) fn frozen(&self) -> Option<Result<&Arc<Plan>, Stop>> {
        match self {
            Self::Frozen(plan) => Some(plan.as_ref().map_err(Clone::clone)),
            _ => None,
        }
    }
}
