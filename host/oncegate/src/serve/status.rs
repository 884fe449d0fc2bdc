//! `effect_status`: what has become of an effect, by the arguments of its call or by what it is about.

use std::collections::BTreeSet;

use oncegate_sandbox::CallRequest;
use oncegate_sandbox::outcome::{Code, EffectView, Outcome};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::status::{Found, Wanted};
use rmcp::model::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::caller::Caller;
use super::catalog::Catalog;
use super::facts::{self, Facts};
use super::server::Shared;

/// Identifiers in one question.
const IDENTIFIERS_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    tool: Option<String>,
    arguments: Option<JsonObject>,
    #[serde(default)]
    identifiers: Vec<String>,
}

/// What the agent hears.
#[derive(Serialize)]
pub(super) struct Answer {
    effects: Vec<EffectView>,
    not_asked_for: usize,
    complete: bool,
    message: &'static str,
}

/// Answers one question.
///
/// # Errors
/// The refusal that the caller is told.
pub(super) async fn answer(shared: &Shared, caller: &Caller, arguments: &JsonObject) -> Result<Answer, Box<Outcome>> {
    let question = serde_json::from_value::<Question>(Value::Object(arguments.clone()));
    let question = question.map_err(|error| invalid(format!("The question cannot be read: {error}.")))?;
    let catalog = shared.catalog();
    let facts = facts::join(&catalog.sandbox.policy().context, &caller.fixed, &caller.given)?;
    let found = match question {
        Question { tool: Some(tool), arguments: Some(arguments), identifiers } if identifiers.is_empty() => {
            by_arguments(&catalog, caller, &tool, arguments, facts).await?
        }
        Question { tool, arguments: None, identifiers } if (1..=IDENTIFIERS_MAX).contains(&identifiers.len()) => {
            by_identifiers(&catalog, caller, tool, identifiers, &facts).await?
        }
        _ => {
            let text = format!("Ask with `tool` and `arguments`, or with 1 to {IDENTIFIERS_MAX} `identifiers`.");
            return Err(invalid(text));
        }
    };
    Ok(told(found))
}

fn told(found: Found) -> Answer {
    let message = match (found.effects.is_empty(), found.complete) {
        (false, true) => "This is what the ledger knows.",
        (false, false) => "This is what was found; there may be more.",
        (true, true) => "No such effect was asked for. To have it done, call its tool.",
        (true, false) => "Nothing was found in what could be looked at; that does not say that there is nothing.",
    };
    Answer { effects: found.effects, not_asked_for: found.not_asked_for, complete: found.complete, message }
}

async fn by_arguments(
    catalog: &Catalog,
    caller: &Caller,
    tool: &str,
    arguments: JsonObject,
    facts: Facts,
) -> Result<Found, Box<Outcome>> {
    let entry = catalog.tool(tool).filter(|entry| catalog.is_for(entry, caller.tenant.as_deref()));
    let entry = entry.ok_or_else(|| invalid(format!("There is no tool {}.", oncegate_contract::safe_text(tool))))?;
    let request = CallRequest { tool: entry.function.clone(), arguments: Value::Object(arguments), context: facts };
    catalog.sandbox.status_of_call(&entry.component, request).await
}

async fn by_identifiers(
    catalog: &Catalog,
    caller: &Caller,
    tool: Option<String>,
    identifiers: Vec<String>,
    facts: &Facts,
) -> Result<Found, Box<Outcome>> {
    let entries = catalog.tools().into_iter().filter(|entry| catalog.is_for(entry, caller.tenant.as_deref()));
    let named = entries.filter(|entry| tool.as_ref().is_none_or(|tool| *tool == entry.tool.name));
    let tools: BTreeSet<String> = named.map(|entry| entry.function.clone()).collect();
    let tenant = facts.get("tenant").cloned().or_else(|| only_tenant(catalog.sandbox.policy()));
    let tenant = tenant.ok_or_else(|| {
        Box::new(Outcome::refused(Code::ContextMissing, "The orchestrator did not say for which tenant this is."))
    })?;
    let found = catalog.sandbox.status_of_labels(&Wanted { tenant, tools, identifiers }).await;
    found.map_err(|why| Box::new(Outcome::refused(Code::LedgerUnavailable, why)))
}

/// The tenant that need not be named, since there is no other.
pub(super) fn only_tenant(policy: &Policy) -> Option<String> {
    let rules = policy.components.iter();
    let tenants: BTreeSet<&String> = rules.flat_map(|rule| &rule.tenants).collect();
    match tenants.len() {
        1 => tenants.first().map(|tenant| (*tenant).clone()),
        _ => None,
    }
}

fn invalid(message: String) -> Box<Outcome> {
    Box::new(Outcome::refused(Code::InvalidArguments, message))
}
