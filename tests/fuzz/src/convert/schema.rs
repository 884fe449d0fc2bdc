//! As much of JSON Schema as the host writes, read a second time: does a schema admit a value?

use serde_json::Value;

pub(super) fn admits(schema: &Value, value: &Value) -> bool {
    type_is(schema, value)
        && bounds(schema, value)
        && list(schema, value)
        && object(schema, value)
        && schema["enum"].as_array().is_none_or(|names| names.contains(value))
        && schema["anyOf"].as_array().is_none_or(|ways| ways.iter().any(|way| admits(way, value)))
        && schema["oneOf"].as_array().is_none_or(|ways| ways.iter().filter(|way| admits(way, value)).count() == 1)
}

fn type_is(schema: &Value, value: &Value) -> bool {
    match schema["type"].as_str() {
        None => true,
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => panic!("a type {other:?} in a schema"),
    }
}

fn bounds(schema: &Value, value: &Value) -> bool {
    let number = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    let within = number(value).is_none_or(|given| {
        number(&schema["minimum"]).is_none_or(|min| given >= min)
            && number(&schema["maximum"]).is_none_or(|max| given <= max)
    });
    let Some(text) = value.as_str() else { return within };
    let length = text.chars().count() as u64;
    let digits = |text: &str, most: usize| {
        let canonical = text == "0" || !text.starts_with('0');
        canonical && (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let matches = match schema["pattern"].as_str() {
        None => true,
        Some("^(0|[1-9][0-9]{0,19})$") => digits(text, 20),
        Some("^(0|-?[1-9][0-9]{0,18})$") => {
            digits(text.strip_prefix('-').filter(|rest| *rest != "0").unwrap_or(text), 19)
        }
        Some(other) => panic!("a pattern {other:?} in a schema"),
    };
    matches
        && schema["minLength"].as_u64().is_none_or(|min| length >= min)
        && schema["maxLength"].as_u64().is_none_or(|max| length <= max)
}

fn list(schema: &Value, value: &Value) -> bool {
    let Some(items) = value.as_array() else { return true };
    let prefix = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
    let length = items.len() as u64;
    let rest = &items[prefix.len().min(items.len())..];
    let unique =
        schema["uniqueItems"] != true || items.iter().enumerate().all(|(at, item)| !items[..at].contains(item));
    unique
        && items.iter().zip(prefix).all(|(item, schema)| admits(schema, item))
        && match &schema["items"] {
            Value::Null => true,
            Value::Bool(more) => *more || rest.is_empty(),
            schema => rest.iter().all(|item| admits(schema, item)),
        }
        && schema["minItems"].as_u64().is_none_or(|min| length >= min)
        && schema["maxItems"].as_u64().is_none_or(|max| length <= max)
}

fn object(schema: &Value, value: &Value) -> bool {
    let Some(members) = value.as_object() else { return true };
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    required.iter().all(|name| name.as_str().is_some_and(|name| members.contains_key(name)))
        && members.iter().all(|(name, value)| match schema["properties"].get(name) {
            Some(schema) => admits(schema, value),
            None => schema["additionalProperties"] != false,
        })
}
