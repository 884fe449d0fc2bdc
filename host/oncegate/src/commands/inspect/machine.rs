//! `inspect --json`: the same as the page, for programs. Keys are only ever added.

use oncegate_contract::{Contract, EffectClass, Field, Operation, lint};
use oncegate_sandbox::describe::{Description, ToolDescription};
use serde_json::{Value, json};

use super::changes::{Change, does_more};
use super::{page, statements, words};
use crate::print::hex;

/// The whole description.
pub(super) fn description(description: &Description) -> Value {
    let contract = &description.contract;
    let pairs = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| json!({ "field": name, "value": value })).collect::<Vec<_>>()
    };
    json!({
        "digest": description.digest_text(),
        "size": description.size,
        "name": description.name,
        "world": description.world,
        "effect": words::class(description.class),
        "contract": description.has_contract.then(|| format!("sha256:{}", hex(&contract.digest()))),
        "wit": description.wit.is_some(),
        "producers": pairs(&description.producers),
        "imports": description.imports.iter().map(|i| json!({ "name": i.name, "meaning": i.meaning })).collect::<Vec<_>>(),
        "endpoints": contract.endpoints.iter().map(|(name, e)| json!({ "name": name, "url": e.url, "credential": e.credential })).collect::<Vec<_>>(),
        "tools": description.tools.iter().map(|t| tool(contract, t)).collect::<Vec<_>>(),
        "operations": contract.operations.values().map(|o| operation(contract, o)).collect::<Vec<_>>(),
        "statements": statements(contract),
        "only_a_person_settles": statements::unsettled(contract).iter().map(|(of, why)| json!({ "of": of, "why": why })).collect::<Vec<_>>(),
        "lints": lint(contract).iter().map(|l| json!({ "code": l.code, "place": l.place, "message": l.message })).collect::<Vec<_>>(),
        "cannot": page::cannot(description),
    })
}

/// Old, new and every change.
pub(super) fn comparison(old: &Description, new: &Description, changes: &[Change]) -> Value {
    json!({
        "does_more": does_more(changes),
        "old": { "digest": old.digest_text(), "name": old.name },
        "new": { "digest": new.digest_text(), "name": new.name },
        "changes": changes.iter().map(|c| json!({ "way": c.way.word(), "at": c.at, "what": c.what })).collect::<Vec<_>>(),
    })
}

fn tool(contract: &Contract, tool: &ToolDescription) -> Value {
    json!({
        "name": tool.name,
        "interface": tool.interface,
        "description": tool.description,
        "signature": tool.signature(),
        "input_schema": tool.input_schema,
        "effect": if tool.acts() { "keyed" } else { "none" },
        "effects_per_call": tool.effects,
        "operations": tool.operations,
        "context": contract.context_facts(&tool.name),
    })
}

fn operation(contract: &Contract, operation: &Operation) -> Value {
    let mut value = json!({
        "name": operation.name,
        "effect": words::class(operation.effect),
        "method": operation.method,
        "endpoint": operation.endpoint,
        "url": contract.endpoints.get(&operation.endpoint).map(|endpoint| &endpoint.url),
        "path": operation.path.text,
        "body": operation.body.as_str(),
        "credential": words::credential(contract, operation),
        "fields": operation.fields.iter().map(|f| field(contract, operation, f)).collect::<Vec<_>>(),
        "run_only_by_the_host": !words::asked_for(contract, operation),
        "answer_headers": operation.headers,
        "found_when": words::conditions(&operation.found_when),
    });
    if let Some(kind) = words::database(contract, operation) {
        value["database"] = kind.as_str().into();
        value["query"] =
            words::asked(operation).into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
    }
    if operation.effect == EffectClass::Keyed {
        keyed(&mut value, operation);
    }
    value
}

fn keyed(value: &mut Value, operation: &Operation) {
    value["action"] = json!(operation.action);
    value["recipe"] = hex(&oncegate_contract::recipe(operation)).into();
    value["receipt"] = json!(operation.receipt.as_ref().map(ToString::to_string));
    value["reference"] = json!(operation.reference.as_ref().map(ToString::to_string));
    value["done_when"] = words::conditions(&operation.done_when).into();
    value["accepted_when"] = words::conditions(&operation.accepted_when).into();
    value["no_effect_when"] = words::conditions(&operation.no_effect_when).into();
    value["duplicate_when"] = words::conditions(&operation.duplicate_when).into();
    value["status_is_proof"] = json!(operation.status_is_proof);
    value["dedupe"] = words::dedupe(operation).into();
    value["settle"] = words::settle(operation).into();
    value["repeat"] = json!(operation.repeat.map(|scope| scope.as_str()));
    value["irreversible"] = operation.irreversible().into();
    value["undone_by"] = json!(operation.undone_by);
    value["completed_by"] = json!(operation.completed_by);
    value["completes"] = json!(operation.completes);
    value["complete_within"] = json!(operation.complete_within.map(words::duration));
    let revokes = operation.revokes.as_ref();
    value["revokes"] = json!(
        revokes.map(|undone| json!({ "operation": undone.operation, "by": "receipt", "at": undone.at.to_string() }))
    );
    value["ensure"] = operation.ensure.into();
}

fn field(contract: &Contract, operation: &Operation, field: &Field) -> Value {
    json!({
        "name": field.name,
        "role": field.role.as_str(),
        "at": field.at.as_ref().map(ToString::to_string),
        "source": field.source.text(),
        "source_words": words::source_of(contract, operation, field),
        "limits": words::limits(field),
    })
}

fn statements(contract: &Contract) -> Vec<Value> {
    let said = |said: &[(String, String)]| {
        said.iter().map(|(of, words)| json!({ "of": of, "says": words })).collect::<Vec<_>>()
    };
    let all = statements::table(contract).into_iter();
    all.map(|s| json!({ "statement": s.stated, "made_by": s.by, "if_false": s.if_false, "said": said(&s.said) }))
        .collect()
}
