//! One value of one field: its type, its normal form, its bounds, and the guest's copy beside it.

use std::cmp::Ordering;

use crate::decimal::Decimal;
use crate::error::FieldError;
use crate::field::{Field, Role, Rule, Source, ValueKind};
use crate::limits::{BYTES_MAX, KEY_PART_BYTES_MAX, TEXT_BYTES_MAX};
use crate::normalize::{Money, Normalizer, normalize};
use crate::value::Value;

/// A value as it is written, and its normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) value: Value,
    pub(crate) normal: String,
}

/// A value that agrees with the guest's copy, except perhaps that the copy is above a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) value: Option<Finished>,
    pub(crate) above: Option<String>,
}

/// Judges a source's value by the guest's copy.
pub(crate) fn judge(
    field: &Field,
    raw: Option<Value>,
    copy: Option<&Value>,
    currency: Option<&str>,
) -> Result<Judged, FieldError> {
    let Some(raw) = raw else {
        return match (field.optional || field.role == Role::Generated, copy) {
            (true, None) => Ok(Judged { value: None, above: None }),
            (true, Some(_)) => {
                Err(FieldError::invalid(&field.name, "the guest gives a value that its source does not have"))
            }
            (false, _) => {
                let pointer = field.pointer().map(ToString::to_string).unwrap_or_default();
                Err(FieldError::invalid(&field.name, format!("{} has nothing at {pointer}", field.source.text())))
            }
        };
    };
    let source = finish(field, raw, currency)?;
    let Some(copy) = copy else {
        return Ok(Judged { value: Some(source), above: None });
    };
    let copy = finish(field, copy.clone(), currency)?;
    match field.rule {
        Rule::AtMost => at_most(field, source, copy),
        Rule::Equal | Rule::OneOf if source.normal == copy.normal => Ok(Judged { value: Some(source), above: None }),
        Rule::Equal | Rule::OneOf => {
            let message = format!("the guest's value is not the one in {}", field.source.text());
            Err(FieldError::invalid(&field.name, message))
        }
    }
}

fn at_most(field: &Field, source: Finished, copy: Finished) -> Result<Judged, FieldError> {
    let (limit, wanted) = (number(field, &source.value)?, number(field, &copy.value)?);
    if wanted.negative && field.min.is_none() {
        return Err(FieldError::invalid(&field.name, "below zero"));
    }
    let above = wanted.compare(&limit) == Ordering::Greater;
    let above = above.then(|| format!("above the {} that its source allows", limit.text()));
    Ok(Judged { value: Some(copy), above })
}

/// Normalises, types and bounds one value.
pub(crate) fn finish(field: &Field, raw: Value, currency: Option<&str>) -> Result<Finished, FieldError> {
    let invalid = |message: String| FieldError::invalid(&field.name, message);
    let finished = normal_form(field, raw, currency).map_err(invalid)?;
    bounds(field, &finished.value)?;
    if field.role == Role::Key {
        key_part(&finished.normal).map_err(|message| FieldError::invalid(&field.name, message))?;
    }
    Ok(finished)
}

fn normal_form(field: &Field, raw: Value, currency: Option<&str>) -> Result<Finished, String> {
    let mut value = raw;
    for normalizer in &field.normalize {
        if value_is_long(&value) {
            return Err(format!("longer than {TEXT_BYTES_MAX} bytes"));
        }
        if *normalizer == Normalizer::Money {
            return money(field.kind, &value, currency);
        }
        if *normalizer == Normalizer::Trim && matches!(value, Value::Integer(_)) {
            continue;
        }
        value = Value::Text(normalize(*normalizer, &value, None)?);
    }
    let value = coerce(field.kind, value)?;
    let normal = value.canonical();
    Ok(Finished { value, normal })
}

fn value_is_long(value: &Value) -> bool {
    matches!(value, Value::Text(text) | Value::Decimal(text) if text.len() > TEXT_BYTES_MAX)
}

fn money(kind: ValueKind, value: &Value, currency: Option<&str>) -> Result<Finished, String> {
    let money = Money::read(value, currency.ok_or("the amount's currency is not known")?)?;
    let value = match kind {
        ValueKind::Integer => Value::Integer(money.minor()?),
        ValueKind::Decimal => Value::Decimal(money.major()),
        _ => Value::Text(money.normal()),
    };
    Ok(Finished { value, normal: money.normal() })
}

/// The value as the declared type, where that loses nothing.
fn coerce(kind: ValueKind, value: Value) -> Result<Value, String> {
    let found = value.type_name();
    let wrong = || Err(format!("{found} is not {}", kind.as_str()));
    match (kind, value) {
        (ValueKind::Text, Value::Text(text) | Value::Decimal(text)) => Ok(Value::Text(text)),
        (ValueKind::Text, Value::Integer(number)) => Ok(Value::Text(number.to_string())),
        (ValueKind::Integer, Value::Integer(number)) => Ok(Value::Integer(number)),
        (ValueKind::Integer, Value::Text(text) | Value::Decimal(text)) => {
            let canonical = crate::decimal::canonical_integer(&text)?;
            canonical.parse().map(Value::Integer).map_err(|_| "the number is too large".into())
        }
        (ValueKind::Decimal, Value::Text(text) | Value::Decimal(text)) => {
            Decimal::parse(&text)?;
            Ok(Value::Decimal(text))
        }
        (ValueKind::Decimal, Value::Integer(number)) => Ok(Value::Decimal(number.to_string())),
        (ValueKind::Boolean, Value::Boolean(truth)) => Ok(Value::Boolean(truth)),
        (ValueKind::Boolean, Value::Text(text)) if text == "true" => Ok(Value::Boolean(true)),
        (ValueKind::Boolean, Value::Text(text)) if text == "false" => Ok(Value::Boolean(false)),
        (ValueKind::Json, Value::Json(json)) if !crate::json::is_shallow(&json) => {
            Err("the document is nested too deeply".into())
        }
        (ValueKind::Json, Value::Json(json)) => Ok(Value::Json(json)),
        (ValueKind::Json, Value::Text(text)) => Ok(Value::Json(text.into())),
        (ValueKind::Json, Value::Integer(number)) => Ok(Value::Json(number.into())),
        (ValueKind::Json, Value::Boolean(truth)) => Ok(Value::Json(truth.into())),
        (ValueKind::Bytes, Value::Bytes(bytes)) => Ok(Value::Bytes(bytes)),
        _ => wrong(),
    }
}

fn number(field: &Field, value: &Value) -> Result<Decimal, FieldError> {
    let text = match value {
        Value::Integer(number) => number.to_string(),
        Value::Decimal(text) => text.clone(),
        other => {
            return Err(FieldError::invalid(&field.name, format!("{} is not a number", other.type_name())));
        }
    };
    Decimal::parse(&text).map_err(|message| FieldError::invalid(&field.name, message))
}

fn bounds(field: &Field, value: &Value) -> Result<(), FieldError> {
    let invalid = |message: String| Err(FieldError::invalid(&field.name, message));
    let (size, unit) = match value {
        Value::Integer(_) | Value::Decimal(_) => return number_bounds(field, value),
        Value::Boolean(_) => return Ok(()),
        Value::Text(text) if text.len() > TEXT_BYTES_MAX => {
            return invalid(format!("longer than {TEXT_BYTES_MAX} bytes"));
        }
        Value::Text(text) => (text.chars().count(), "characters"),
        Value::Json(json) => {
            let long = crate::json::canonical(json).len() > TEXT_BYTES_MAX;
            return if long { invalid(format!("longer than {TEXT_BYTES_MAX} bytes")) } else { Ok(()) };
        }
        Value::Bytes(bytes) if bytes.len() > BYTES_MAX => {
            return invalid(format!("longer than {BYTES_MAX} bytes"));
        }
        Value::Bytes(bytes) => (bytes.len(), "bytes"),
    };
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    match (field.min, field.max) {
        (_, Some(max)) if size > max => invalid(format!("longer than {max} {unit}")),
        (Some(min), _) if size < min => invalid(format!("shorter than {min} {unit}")),
        _ => Ok(()),
    }
}

fn number_bounds(field: &Field, value: &Value) -> Result<(), FieldError> {
    let invalid = |message: String| Err(FieldError::invalid(&field.name, message));
    let found = number(field, value)?;
    let bound = |limit: i64| number(field, &Value::Integer(limit));
    if let Some(max) = field.max
        && found.compare(&bound(max)?) == Ordering::Greater
    {
        return invalid(format!("above {max}"));
    }
    if let Some(min) = field.min
        && found.compare(&bound(min)?) == Ordering::Less
    {
        return invalid(format!("below {min}"));
    }
    Ok(())
}

fn key_part(normal: &str) -> Result<(), String> {
    if normal.is_empty() {
        return Err("a key part is empty".into());
    }
    if normal.len() > KEY_PART_BYTES_MAX {
        return Err(format!(
            "a key part is longer than {KEY_PART_BYTES_MAX} bytes: it names an identifier, not a text"
        ));
    }
    if normal.chars().any(char::is_control) {
        return Err("a key part has control characters".into());
    }
    Ok(())
}

/// A JSON source's value as the field's type wants to read it.
pub(crate) fn read(field: &Field, json: Option<&serde_json::Value>) -> Result<Option<Value>, FieldError> {
    let invalid = |message: String| FieldError::invalid(&field.name, message);
    let Some(json) = json.filter(|json| !json.is_null()) else {
        return Ok(None);
    };
    if let Source::Content(_) = field.source {
        let text = json.as_str().ok_or_else(|| invalid("the argument is not bytes".into()))?;
        let bytes = crate::value::base64_decode(text).map_err(invalid)?;
        return Ok(Some(Value::Text(Value::Bytes(bytes).canonical())));
    }
    match (field.kind, json) {
        (ValueKind::Json, _) => Ok(Some(Value::Json(json.clone()))),
        (ValueKind::Bytes, serde_json::Value::String(text)) => {
            crate::value::base64_decode(text).map(|bytes| Some(Value::Bytes(bytes))).map_err(invalid)
        }
        // 500 and 500.0 are one number to most JSON writers; as amounts they differ a hundredfold.
        (_, serde_json::Value::Number(number)) if number.is_f64() && field.normalize.contains(&Normalizer::Money) => {
            Err(invalid("an amount is a whole number of minor units or text, never a float".into()))
        }
        (_, serde_json::Value::Number(number)) if number.is_f64() && field.role == Role::Key => {
            Err(invalid("a floating-point number never enters a key".into()))
        }
        _ => Value::from_json(json).map_err(invalid),
    }
}
