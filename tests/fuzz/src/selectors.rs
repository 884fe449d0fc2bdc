//! Pointers and conditions against an answer, compared with a second reading of the same words.
//!
//! Parts: a pointer, a JSON document, a JSON value to compare with, statuses, the answer's own status.

use oncegate_contract::{Answer, Contract, Operation, Pointer, Segment, found, parse_json};
use serde_json::Value;

use crate::parts;

pub(crate) fn run(data: &[u8]) {
    let parts = parts::of(data);
    let Some(pointer) = parts::text(&parts, 0) else { return };
    let document = parts.get(1).copied().unwrap_or_default();
    let json = parse_json(document);
    if let Ok(json) = &json {
        let other: Value = serde_json::from_slice(document).expect("what is accepted is JSON to everybody");
        assert_eq!(*json, other, "two readers read two documents");
    }
    if let Ok(parsed) = Pointer::parse(pointer) {
        assert_eq!(parsed.to_string(), pointer, "a pointer has one spelling");
        if let (Ok(json), false) = (&json, parsed.has_any()) {
            same_as_rfc_6901(&parsed, pointer, json);
        }
    }
    let wanted = parts::text(&parts, 2).unwrap_or_default();
    let statuses = parts::text(&parts, 3).unwrap_or_default();
    let status = parts::text(&parts, 4).and_then(|text| text.parse().ok()).unwrap_or(200);
    let answer = Answer { status, headers: Vec::new(), body: document.to_vec(), complete: true };
    for test in [Test::In(wanted), Test::Exists(true), Test::Exists(false), Test::None] {
        condition(pointer, &test, statuses, &answer);
    }
}

fn same_as_rfc_6901(parsed: &Pointer, pointer: &str, json: &Value) {
    let ours = parsed.get(json);
    let theirs = json.pointer(pointer).filter(|value| !value.is_null());
    let long_index = |step: &Segment| matches!(step, Segment::Name(name) if name.len() > 6);
    if ours.is_some() || !parsed.segments().iter().any(long_index) {
        assert_eq!(ours, theirs, "{pointer}");
    }
}

#[derive(Debug)]
enum Test<'a> {
    In(&'a str),
    Exists(bool),
    None,
}

/// A lookup that is found under one condition; none where the contract takes no such condition.
fn lookup(pointer: &str, test: &Test<'_>, statuses: &str) -> Option<Operation> {
    let at = toml::Value::from(pointer);
    let (at, test) = match test {
        Test::In(wanted) => (format!(", at = {at}"), format!(", equals = {wanted}")),
        Test::Exists(wanted) => (format!(", at = {at}"), format!(", exists = {wanted}")),
        Test::None => (String::new(), String::new()),
    };
    let status = if statuses.is_empty() { "\"2xx\"" } else { statuses };
    let text = format!(
        "[component]\nname = \"c\"\neffect = \"none\"\n[endpoint.e]\nurl = \"https://e.example\"\n[tool.t]\n\
         operations = [\"o\"]\n[operation.o]\neffect = \"none\"\nrequest = \"GET e:/\"\n\
         found-when = {{ status = {status}{at}{test} }}\n"
    );
    let contract = Contract::parse("c.toml", &text).ok()?;
    // Whoever closes the condition early writes another contract, which is another target's affair.
    let plain = |text: &str| !text.contains(['{', '}', '\n', '#']);
    let same = plain(statuses) && matches!(test.as_str(), text if plain(text));
    contract.operations.get("o").filter(|_| same).cloned()
}

fn condition(pointer: &str, test: &Test<'_>, statuses: &str, answer: &Answer) {
    let Some(operation) = lookup(pointer, test, statuses) else { return };
    let holds = found(&operation, answer);
    let (status, body) = (answer.status, parse_json(&answer.body).ok());
    assert!(!holds || status / 100 == 2, "{status} is found");
    if statuses.is_empty() {
        let met = match (test, &body) {
            (Test::None, _) => true,
            (_, None) => false,
            (Test::Exists(wanted), Some(body)) => any(pointer, body, |value| value.is_some() == *wanted),
            (Test::In(text), Some(body)) => {
                let Ok(wanted) = serde_json::from_str::<Value>(text) else { return };
                // What TOML and JSON write alike, and nothing else, can be compared from outside.
                let spelled = wanted.to_string();
                if wanted.is_number() || spelled != *text {
                    return;
                }
                any(pointer, body, |value| value == Some(&wanted))
            }
        };
        assert_eq!(holds, met && status / 100 == 2, "{pointer} {test:?} {status}");
    }
}

/// Whether the value at the pointer, or of any element under its `*`, is what is asked for.
fn any(pointer: &str, body: &Value, holds: impl Fn(Option<&Value>) -> bool) -> bool {
    let at = |document: &Value, pointer: &str| {
        document.pointer(pointer).filter(|value| !value.is_null()).is_some_and(|value| holds(Some(value)))
            || (document.pointer(pointer).is_none_or(Value::is_null) && holds(None))
    };
    let star = pointer.split('/').position(|step| step == "*");
    let Some(star) = star else { return at(body, pointer) };
    let steps: Vec<&str> = pointer.split('/').collect();
    let (array, inner) = (steps[..star].join("/"), steps[star + 1..].join("/"));
    let inner = if steps.len() > star + 1 { format!("/{inner}") } else { String::new() };
    match body.pointer(&array) {
        Some(Value::Array(elements)) => elements.iter().any(|element| at(element, &inner)),
        _ => holds(None),
    }
}
