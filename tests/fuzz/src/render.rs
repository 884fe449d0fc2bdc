//! From arguments, facts, lookups and a guest's values to a request that holds exactly what is declared.
//!
//! Parts: a contract (or the name of an example), an operation, and a JSON document of one call:
//! `arguments`, `context`, `answers` by operation, `given`, `plan`. A text `$N` in it is the part behind it
//! with that number, so that any bytes can be a value.

mod sent;

use std::collections::BTreeMap;

use oncegate_contract::{
    Contract, Fetched, FieldError, Operation, Owner, Resolved, Role, Source, Sources, Value, downstream_key,
    effect_key, fingerprint, former_keys, generated_digest, label, parse_json, recipe, render, resolve, settle_fields,
};
use serde_json::{Map, Value as Json};

use crate::parts;

const EXAMPLES: [(&str, &str); 6] = [
    ("campaign", include_str!("../../../host/contract/tests/fixtures/campaign.toml")),
    ("notes", include_str!("../../../host/contract/tests/fixtures/notes.toml")),
    ("orders", include_str!("../../../host/contract/tests/fixtures/orders.toml")),
    ("payout", include_str!("../../../host/contract/tests/fixtures/payout.toml")),
    ("posts", include_str!("../../../host/contract/tests/fixtures/posts.toml")),
    ("refunds", include_str!("../../../host/contract/tests/fixtures/refunds.toml")),
];
const OWNER: Owner<'_> = Owner { tenant: "acme", account: "acme-eu", owner: "owner" };
const SALT: [u8; 16] = [7; 16];
const BASE: &str = "https://host.example:8443/base";

pub(crate) fn run(data: &[u8]) {
    let parts = parts::of(data);
    let Some(text) = parts::text(&parts, 0) else { return };
    let example = EXAMPLES.iter().find(|(name, _)| *name == text);
    let Ok(contract) = Contract::parse("c.toml", example.map_or(text, |(_, text)| text)) else { return };
    let wanted = parts::text(&parts, 1).unwrap_or_default();
    let Some(operation) = contract.operations.get(wanted).or_else(|| contract.operations.values().next()) else {
        return;
    };
    let Ok(document) = parse_json(parts.get(2).copied().unwrap_or(b"{}")) else { return };
    let document = filled(document, parts.get(3..).unwrap_or_default());
    one_call(operation, &Call::of(&document));
}

/// Texts `$N` are the parts themselves.
fn filled(json: Json, values: &[&[u8]]) -> Json {
    match json {
        Json::String(text) => {
            let part = text.strip_prefix('$').and_then(|n| values.get(n.parse::<usize>().ok()?));
            part.map_or(Json::String(text), |part| Json::String(String::from_utf8_lossy(part).into_owned()))
        }
        Json::Array(items) => items.into_iter().map(|item| filled(item, values)).collect(),
        Json::Object(members) => {
            Json::Object(members.into_iter().map(|(name, value)| (name, filled(value, values))).collect())
        }
        other => other,
    }
}

/// One call's sources, owned.
#[derive(Default, Clone)]
struct Call {
    context: BTreeMap<String, String>,
    arguments: Json,
    lookups: Vec<Fetched>,
    given: Vec<(String, Value)>,
    plan: BTreeMap<String, Value>,
}

impl Call {
    fn of(document: &Json) -> Self {
        let members = |name: &str| document.get(name).and_then(Json::as_object).into_iter().flatten();
        let text = |(name, value): (&String, &Json)| Some((name.clone(), value.as_str()?.to_owned()));
        let value = |(name, json): (&String, &Json)| Some((name.clone(), value_of(json)?));
        let lookups = members("answers").zip(0..).map(|((operation, body), fetch)| Fetched {
            fetch,
            operation: operation.clone(),
            found: true,
            body: body.clone(),
        });
        Self {
            context: members("context").filter_map(text).collect(),
            arguments: document.get("arguments").cloned().unwrap_or_default(),
            lookups: lookups.collect(),
            given: members("given").filter_map(value).collect(),
            plan: members("plan").filter_map(value).collect(),
        }
    }

    fn resolve(&self, operation: &Operation) -> Result<Resolved, FieldError> {
        resolve(operation, &self.sources())
    }

    fn sources(&self) -> Sources<'_> {
        let Self { context, arguments, lookups, given, plan } = self;
        Sources { context, arguments, lookups, given, plan }
    }

    /// The same call, with all that has no order in another one.
    fn turned(&self) -> Self {
        let mut call = self.clone();
        call.given.reverse();
        if let Json::Object(members) = &self.arguments {
            call.arguments = Json::Object(members.clone().into_iter().rev().collect::<Map<_, _>>());
        }
        call
    }
}

/// `{"bytes": …}`, `{"decimal": …}` and `{"json": …}` are what a guest can say and JSON cannot.
fn value_of(json: &Json) -> Option<Value> {
    if let Some((name, inner)) = json.as_object().filter(|members| members.len() == 1).and_then(|m| m.iter().next()) {
        return match (name.as_str(), inner) {
            ("bytes", Json::String(text)) => Some(Value::Bytes(text.clone().into_bytes())),
            ("decimal", Json::String(text)) => Some(Value::Decimal(text.clone())),
            ("json", inner) => Some(Value::Json(inner.clone())),
            _ => Some(Value::Json(json.clone())),
        };
    }
    Value::from_json(json).ok().flatten()
}

fn one_call(operation: &Operation, call: &Call) {
    let resolved = call.resolve(operation);
    let turned = call.turned().resolve(operation);
    assert_eq!(resolved.is_ok(), turned.is_ok(), "what has no order decides: {resolved:?} {turned:?}");
    let (Ok(resolved), Ok(turned)) = (resolved, turned) else { return };
    let stored = serde_json::to_vec(&resolved).expect("what is resolved can be stored");
    let stored: Resolved = serde_json::from_slice(&stored).expect("what is stored can be read");
    assert_eq!(stored, resolved, "what is stored is not what was resolved");
    let _ = (label(operation, &resolved), recipe(operation), generated_digest(&resolved));
    let _ = former_keys(operation, &OWNER, &call.sources(), 0);
    let key = effect_key(operation, &OWNER, &resolved, 0);
    assert_eq!(key, effect_key(operation, &OWNER, &turned, 0), "the order of arguments is in the key");
    assert_eq!(fingerprint(&resolved, SALT), fingerprint(&turned, SALT));
    assert!(fingerprint(&resolved, SALT).differing(&resolved).is_empty());
    let Ok(key) = key else { return };
    let downstream = downstream_key(&key, 1);
    other_words(operation, call, &resolved);
    other_values(&resolved);
    let _ = settle_fields(operation, &resolved, &downstream);
    if let Ok(request) = render(operation, BASE, &resolved, Some(&downstream)) {
        let again = render(operation, BASE, &resolved, Some(&downstream));
        assert_eq!(again.as_ref(), Ok(&request), "the same values are two requests");
        sent::exactly_what_is_declared(operation, &resolved, &downstream, &request);
    }
}

/// A model's other words for what identifies nothing change neither key nor fingerprint.
fn other_words(operation: &Operation, call: &Call, resolved: &Resolved) {
    let mut other = call.clone();
    for (name, value) in &mut other.given {
        let generated =
            operation.field(name).is_some_and(|field| field.role == Role::Generated && field.source == Source::Guest);
        if let (true, Value::Text(text)) = (generated, value) {
            text.push('x');
        }
    }
    // A longer text may be longer than its field allows.
    if let Ok(other) = other.resolve(operation) {
        assert_eq!(effect_key(operation, &OWNER, &other, 0), effect_key(operation, &OWNER, resolved, 0));
        assert_eq!(fingerprint(&other, SALT), fingerprint(resolved, SALT));
    }
}

/// A bound value that differs is told by its name.
fn other_values(resolved: &Resolved) {
    let before = fingerprint(resolved, SALT);
    for at in 0..resolved.fields.len() {
        let mut other = resolved.clone();
        let Some(normal) = other.fields[at].normal.as_mut().filter(|_| resolved.fields[at].role == Role::Bound) else {
            continue;
        };
        normal.push('x');
        assert_eq!(before.differing(&other), [resolved.fields[at].name.clone()]);
    }
}
