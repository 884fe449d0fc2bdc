//! An agent's JSON to typed values and back: what is taken is taken exactly, and written in one way.
//!
//! The bytes before the separator make the types of a tool's parameters; behind it are the arguments.

mod schema;

use oncegate_sandbox::convert::{ToolResult, canonical_arguments, result_to_json, to_vals};
use oncegate_sandbox::describe::{ToolDescription, WitCase, WitField, WitKind, WitLabel, WitType};
use oncegate_sandbox::schema::{of_arguments, of_error, of_success};
use serde_json::Value;

use crate::parts;

/// Deepest type that is made here.
const DEPTH_MAX: usize = 4;
/// WIT names, some of which are other names in JSON.
const NAMES: [&str; 4] = ["a", "two-words", "ok", "id2"];

pub(crate) fn run(data: &[u8]) {
    let parts = parts::of(data);
    let (Some(shape), Some(json)) = (parts.first(), parts.get(1)) else { return };
    let Ok(arguments) = serde_json::from_slice::<Value>(json) else { return };
    let mut shape = shape.iter().copied();
    let count = usize::from(shape.next().unwrap_or_default()) % NAMES.len();
    let params: Vec<_> = NAMES[..count].iter().map(|name| ((*name).to_owned(), ty(&mut shape, DEPTH_MAX))).collect();
    one_call(&tool(params), &arguments);
}

fn one_call(tool: &ToolDescription, arguments: &Value) {
    let vals = to_vals(arguments, tool);
    let vals = match vals {
        Ok(vals) => vals,
        Err(error) => {
            assert!(!error.expected.is_empty() && !error.found.is_empty(), "{error}");
            return;
        }
    };
    assert_eq!(vals.len(), tool.params.len());
    let canonical = canonical_arguments(&vals, tool).expect("what came from JSON has a JSON form");
    assert!(schema::admits(&tool.input_schema, &canonical), "{canonical} is not by {}", tool.input_schema);
    let again = to_vals(&canonical, tool).expect("the canonical form is taken");
    assert_eq!(again, vals, "{canonical}");
    assert_eq!(canonical_arguments(&again, tool).as_ref(), Ok(&canonical));
    for (index, (_, ty)) in tool.params.iter().enumerate() {
        let returns = ToolDescription { result: Some(ty.clone()), ..self::tool(Vec::new()) };
        match result_to_json(&vals[index..=index], &returns).expect("a result") {
            ToolResult::Ok(json) => assert!(schema::admits(&of_success(Some(ty)), &json), "{json}"),
            ToolResult::Err(json) => {
                assert!(of_error(Some(ty)).is_none_or(|schema| schema::admits(&schema, &json)), "{json}");
            }
        }
    }
}

fn tool(params: Vec<(String, WitType)>) -> ToolDescription {
    ToolDescription {
        name: "tool".to_owned(),
        interface: None,
        description: None,
        spread: matches!(&params[..], [(_, WitType { kind: WitKind::Record(_), .. })]),
        input_schema: of_arguments(&params),
        params,
        result: None,
        output_schema: Value::Null,
        error_schema: None,
        operations: Vec::new(),
        effects: 0,
    }
}

/// A type, from as many bytes as it takes.
fn ty(shape: &mut impl Iterator<Item = u8>, depth: usize) -> WitType {
    let kinds = if depth == 0 { 14 } else { 22 };
    let kind = match shape.next().unwrap_or_default() % kinds {
        0 => WitKind::String,
        1 => WitKind::Bool,
        2 => WitKind::U8,
        3 => WitKind::U16,
        4 => WitKind::U32,
        5 => WitKind::U64,
        6 => WitKind::S8,
        7 => WitKind::S16,
        8 => WitKind::S32,
        9 => WitKind::S64,
        10 => WitKind::F32,
        11 => WitKind::F64,
        12 => WitKind::Char,
        13 => WitKind::Bytes,
        14 => WitKind::List(inner(shape, depth)),
        15 => WitKind::Option(inner(shape, depth)),
        16 => WitKind::Result(perhaps(shape, depth).map(Box::new), perhaps(shape, depth).map(Box::new)),
        17 => WitKind::Tuple(names(shape).iter().map(|_| ty(shape, depth - 1)).collect()),
        18 => WitKind::Record(names(shape).iter().map(|name| field(name, ty(shape, depth - 1))).collect()),
        19 => WitKind::Variant(names(shape).iter().map(|name| case(name, perhaps(shape, depth))).collect()),
        20 => WitKind::Enum(names(shape).iter().map(|name| label(name)).collect()),
        _ => WitKind::Flags(names(shape).iter().map(|name| label(name)).collect()),
    };
    WitType { kind, docs: None }
}

fn inner(shape: &mut impl Iterator<Item = u8>, depth: usize) -> Box<WitType> {
    Box::new(ty(shape, depth - 1))
}

fn perhaps(shape: &mut impl Iterator<Item = u8>, depth: usize) -> Option<WitType> {
    (shape.next().unwrap_or_default() & 1 == 1).then(|| ty(shape, depth - 1))
}

fn names(shape: &mut impl Iterator<Item = u8>) -> &'static [&'static str] {
    &NAMES[..1 + usize::from(shape.next().unwrap_or_default()) % NAMES.len()]
}

fn field(name: &str, ty: WitType) -> WitField {
    WitField { name: name.to_owned(), docs: None, ty }
}

fn case(name: &str, ty: Option<WitType>) -> WitCase {
    WitCase { name: name.to_owned(), docs: None, ty }
}

fn label(name: &str) -> WitLabel {
    WitLabel { name: name.to_owned(), docs: None }
}
