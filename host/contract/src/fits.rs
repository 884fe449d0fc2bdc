//! Whether a contract and a component's interface belong together.

use serde_json::Value as Json;

use crate::contract::Contract;
use crate::error::ContractError;
use crate::field::{Role, Source};
use crate::limits::POINTER_SEGMENTS_MAX;
use crate::operation::{EffectClass, Operation};
use crate::pointer::Segment;

/// What a component shows of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// It imports the door to effects.
    pub imports_effect: bool,
    /// It imports lookups.
    pub imports_lookup: bool,
    /// Its exported functions, each with the JSON Schema of its arguments.
    pub tools: Vec<(String, Json)>,
}

/// Checks a contract against an interface; empty when they fit.
pub fn fits(contract: &Contract, file: &str, interface: &Interface) -> Vec<ContractError> {
    let mut errors = Vec::new();
    let mut report = |key: String, message: String| {
        errors.push(ContractError { file: file.to_owned(), line: contract.line(&key), key, message });
    };
    if contract.component.effect == EffectClass::None && interface.imports_effect {
        let message = "the component imports oncegate:effect/effect, but the contract says effect = \"none\"";
        report("component.effect".into(), message.into());
    }
    for (name, tool) in &contract.tools {
        let Some((_, schema)) = interface.tools.iter().find(|(exported, _)| exported == name) else {
            let known: Vec<_> = interface.tools.iter().map(|(n, _)| n.as_str()).collect();
            report(
                format!("tool.{name}"),
                format!("the component exports no function of that name; it exports: {}", known.join(", ")),
            );
            continue;
        };
        let operations = tool.operations.iter().filter_map(|o| contract.operations.get(o));
        for operation in operations {
            for (key, message) in operation_fits(operation, interface, name, schema) {
                report(format!("operation.{}{key}", operation.name), message);
            }
        }
    }
    errors.sort_by(|a, b| (a.line, &a.key, &a.message).cmp(&(b.line, &b.key, &b.message)));
    errors.dedup();
    errors
}

fn operation_fits(operation: &Operation, interface: &Interface, tool: &str, schema: &Json) -> Vec<(String, String)> {
    let mut found = Vec::new();
    match operation.effect {
        EffectClass::Keyed if !interface.imports_effect => {
            found.push((
                ".effect".into(),
                format!("tool {tool} cannot ask for it: the component does not import oncegate:effect/effect"),
            ));
        }
        EffectClass::None if !interface.imports_lookup => {
            found.push((
                ".effect".into(),
                format!("tool {tool} cannot ask for it: the component does not import oncegate:effect/lookup"),
            ));
        }
        _ => {}
    }
    for (i, field) in operation.fields.iter().enumerate() {
        let (Source::Argument(pointer) | Source::Content(pointer)) = &field.source else {
            continue;
        };
        let key = format!(".fields[{i}].from");
        match reach(schema, schema, pointer.segments(), POINTER_SEGMENTS_MAX * 4) {
            Reach::Nothing => found.push((key, format!("tool {tool} has no argument {pointer}"))),
            Reach::Float if field.role == Role::Key => {
                found.push((key, format!("argument {pointer} of tool {tool} is a float; floats never enter a key")));
            }
            _ => {}
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Nothing,
    Float,
    Something,
}

/// Follows a pointer through a JSON Schema; what the schema leaves open is reached.
fn reach(root: &Json, schema: &Json, steps: &[Segment], fuel: usize) -> Reach {
    let Some(fuel) = fuel.checked_sub(1) else {
        return Reach::Nothing;
    };
    if let Some(target) = schema.get("$ref").and_then(Json::as_str) {
        let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(Reach::Nothing, |target| reach(root, target, steps, fuel));
    }
    let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| schema.get(*word)?.as_array());
    let alternatives: Vec<&Json> = alternatives.flatten().collect();
    if !alternatives.is_empty() {
        let ways: Vec<_> = alternatives.iter().map(|way| reach(root, way, steps, fuel)).collect();
        let best = [Reach::Float, Reach::Something].into_iter().find(|wanted| ways.contains(wanted));
        return best.unwrap_or(Reach::Nothing);
    }
    let Some((step, rest)) = steps.split_first() else {
        let number = schema
            .get("type")
            .is_some_and(|t| *t == "number" || t.as_array().is_some_and(|l| l.contains(&"number".into())));
        return if number { Reach::Float } else { Reach::Something };
    };
    match step {
        Segment::Any => schema.get("items").map_or(Reach::Nothing, |items| reach(root, items, rest, fuel)),
        Segment::Name(name) => match schema.get("properties").and_then(|p| p.get(name)) {
            Some(member) => reach(root, member, rest, fuel),
            None if schema == &Json::Bool(true) || schema.as_object().is_some_and(|o| o.is_empty()) => Reach::Something,
            None => Reach::Nothing,
        },
    }
}
