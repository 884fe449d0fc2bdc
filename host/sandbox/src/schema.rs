//! JSON Schema 2020-12 from a tool's WIT types and docs: what an agent is shown.
//!
//! Every schema accepts exactly what [`crate::convert`] accepts, so a client that validates loses
//! nothing and one that does not is told by the same rules.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::describe::{WitCase, WitField, WitKind, WitLabel, WitType};

/// A JSON property name: the WIT name with `_` for `-`.
#[must_use]
pub fn property(name: &str) -> String {
    name.replace('-', "_")
}

/// The same, without making a text where the name is one already.
pub(crate) fn property_name(name: &str) -> Cow<'_, str> {
    if name.contains('-') { property(name).into() } else { name.into() }
}

/// Whether the property of this WIT name has that name.
pub(crate) fn is_property(name: &str, given: &str) -> bool {
    let as_property = |byte: u8| if byte == b'-' { b'_' } else { byte };
    name.len() == given.len() && name.bytes().map(as_property).eq(given.bytes())
}

/// The schema of a tool's arguments. A single record parameter is spread.
#[must_use]
pub fn of_arguments(params: &[(String, WitType)]) -> Value {
    match params {
        [(_, WitType { kind: WitKind::Record(fields), .. })] => {
            object(fields.iter().map(|f| (f.name.as_str(), &f.ty, f.docs.as_deref())))
        }
        _ => object(params.iter().map(|(name, ty)| (name.as_str(), ty, None))),
    }
}

/// The schema of what a successful call returns; nothing is null.
#[must_use]
pub fn of_success(result: Option<&WitType>) -> Value {
    match result.map(|ty| &ty.kind) {
        None | Some(WitKind::Result(None, _)) => json!({"type": "null"}),
        Some(WitKind::Result(Some(ok), _)) => of(ok),
        Some(_) => result.map_or(Value::Null, of),
    }
}

/// The schema of the error, for functions that return a `result`.
#[must_use]
pub fn of_error(result: Option<&WitType>) -> Option<Value> {
    match &result?.kind {
        WitKind::Result(_, Some(err)) => Some(of(err)),
        WitKind::Result(_, None) => Some(json!({"type": "null"})),
        _ => None,
    }
}

/// The schema of one type.
#[must_use]
pub fn of(ty: &WitType) -> Value {
    described(of_kind(&ty.kind), ty.docs.as_deref())
}

fn of_kind(kind: &WitKind) -> Value {
    match kind {
        WitKind::Bool => json!({"type": "boolean"}),
        WitKind::U8 => integer(u8::MIN, u8::MAX),
        WitKind::U16 => integer(u16::MIN, u16::MAX),
        WitKind::U32 => integer(u32::MIN, u32::MAX),
        WitKind::S8 => integer(i8::MIN, i8::MAX),
        WitKind::S16 => integer(i16::MIN, i16::MAX),
        WitKind::S32 => integer(i32::MIN, i32::MAX),
        WitKind::U64 => wide(integer(u64::MIN, u64::MAX), "^(0|[1-9][0-9]{0,19})$"),
        WitKind::S64 => wide(integer(i64::MIN, i64::MAX), "^(0|-?[1-9][0-9]{0,18})$"),
        WitKind::F32 | WitKind::F64 => json!({"type": "number"}),
        WitKind::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        WitKind::String => json!({"type": "string"}),
        WitKind::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        WitKind::List(item) => json!({"type": "array", "items": of(item)}),
        WitKind::Option(item) => json!({"anyOf": [of(item), {"type": "null"}]}),
        WitKind::Result(ok, err) => one_of([("ok", ok.as_deref(), None), ("err", err.as_deref(), None)]),
        WitKind::Tuple(items) => tuple(items),
        WitKind::Record(fields) => {
            object(fields.iter().map(|f: &WitField| (f.name.as_str(), &f.ty, f.docs.as_deref())))
        }
        WitKind::Variant(cases) => {
            one_of(cases.iter().map(|c: &WitCase| (c.name.as_str(), c.ty.as_ref(), c.docs.as_deref())))
        }
        WitKind::Enum(labels) => enumeration(labels),
        WitKind::Flags(labels) => {
            json!({"type": "array", "items": enumeration(labels), "uniqueItems": true})
        }
    }
}

fn integer<T: Into<Value>>(minimum: T, maximum: T) -> Value {
    json!({"type": "integer", "minimum": minimum.into(), "maximum": maximum.into()})
}

/// 64-bit integers may also come as text: many JSON writers round beyond 2^53.
fn wide(integer: Value, pattern: &str) -> Value {
    json!({"anyOf": [integer, {"type": "string", "pattern": pattern}]})
}

fn tuple(items: &[WitType]) -> Value {
    let prefix: Vec<Value> = items.iter().map(of).collect();
    json!({"type": "array", "prefixItems": prefix, "items": false, "minItems": items.len(), "maxItems": items.len()})
}

fn object<'a>(properties: impl Iterator<Item = (&'a str, &'a WitType, Option<&'a str>)>) -> Value {
    let mut schemas = Map::new();
    let mut required = Vec::new();
    for (name, ty, docs) in properties {
        let name = property(name);
        if !ty.is_option() {
            required.push(Value::from(name.clone()));
        }
        schemas.insert(name, described(of(ty), docs));
    }
    json!({"type": "object", "properties": schemas, "required": required, "additionalProperties": false})
}

fn one_of<'a>(cases: impl IntoIterator<Item = (&'a str, Option<&'a WitType>, Option<&'a str>)>) -> Value {
    let alternatives: Vec<Value> = cases
        .into_iter()
        .map(|(name, ty, docs)| {
            let payload = ty.map_or_else(|| json!({"type": "null"}), of);
            let alternative = json!({
                "type": "object",
                "properties": {name: payload},
                "required": [name],
                "additionalProperties": false,
            });
            described(alternative, docs)
        })
        .collect();
    json!({"oneOf": alternatives})
}

/// A JSON Schema `enum` has no place for a text per value, so the texts go into the description.
fn enumeration(labels: &[WitLabel]) -> Value {
    let names: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
    let texts: Vec<String> =
        labels.iter().filter_map(|label| Some(format!("`{}`: {}", label.name, label.docs.as_deref()?))).collect();
    let docs = (!texts.is_empty()).then(|| texts.join("\n"));
    described(json!({"type": "string", "enum": names}), docs.as_deref())
}

/// Puts a text in front of what the schema already says.
fn described(mut schema: Value, docs: Option<&str>) -> Value {
    if let (Some(docs), Some(object)) = (docs, schema.as_object_mut()) {
        let text = match object.get("description").and_then(Value::as_str) {
            Some(inner) if inner != docs => format!("{docs}\n{inner}"),
            _ => docs.to_owned(),
        };
        object.insert("description".into(), text.into());
    }
    schema
}
