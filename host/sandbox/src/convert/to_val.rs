//! One JSON value to one typed value.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use wasmtime::component::Val;

use super::bounds::{Budget, kind_of};
use super::path::Path;
use super::{ArgumentError, LIST_ITEMS_MAX, TEXT_BYTES_MAX, VALUES_MAX};
use crate::describe::{WitCase, WitKind, WitLabel, WitType};
use crate::schema::{is_property, property_name};

/// Whole numbers of a float are exact up to here.
const FLOAT_EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Standard alphabet; the padding may be left out, as models do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn refuse<T>(path: &Path<'_>, expected: impl Into<String>, found: &Value) -> Result<T, ArgumentError> {
    Err(ArgumentError { path: path.to_string(), expected: expected.into(), found: kind_of(found) })
}

/// The value of type `ty` at `path`.
pub(super) fn read(value: &Value, ty: &WitType, path: &Path<'_>, budget: &mut Budget) -> Result<Val, ArgumentError> {
    if !budget.take() {
        return Err(ArgumentError {
            path: path.to_string(),
            expected: format!("at most {VALUES_MAX} values in all"),
            found: "more".into(),
        });
    }
    match &ty.kind {
        WitKind::Bool => match value {
            Value::Bool(value) => Ok(Val::Bool(*value)),
            _ => refuse(path, "true or false", value),
        },
        WitKind::U8 => whole(value, path, u8::MIN, u8::MAX).map(Val::U8),
        WitKind::U16 => whole(value, path, u16::MIN, u16::MAX).map(Val::U16),
        WitKind::U32 => whole(value, path, u32::MIN, u32::MAX).map(Val::U32),
        WitKind::U64 => wide(value, path, u64::MIN, u64::MAX).map(Val::U64),
        WitKind::S8 => whole(value, path, i8::MIN, i8::MAX).map(Val::S8),
        WitKind::S16 => whole(value, path, i16::MIN, i16::MAX).map(Val::S16),
        WitKind::S32 => whole(value, path, i32::MIN, i32::MAX).map(Val::S32),
        WitKind::S64 => wide(value, path, i64::MIN, i64::MAX).map(Val::S64),
        WitKind::F32 => float32(value, path),
        WitKind::F64 => float64(value, path).map(Val::Float64),
        WitKind::Char => character(value, path),
        WitKind::String => text(value, path).map(|text| Val::String(text.into())),
        WitKind::Bytes => bytes(value, path),
        WitKind::List(item) => list(value, item, path, budget).map(Val::List),
        WitKind::Option(_) if value.is_null() => Ok(Val::Option(None)),
        WitKind::Option(item) => Ok(Val::Option(Some(Box::new(read(value, item, path, budget)?)))),
        WitKind::Result(ok, err) => result(value, (ok.as_deref(), err.as_deref()), path, budget),
        WitKind::Tuple(items) => tuple(value, items, path, budget).map(Val::Tuple),
        WitKind::Record(fields) => match value {
            Value::Object(object) => {
                let fields = fields.iter().map(|field| (field.name.as_str(), &field.ty));
                members(object, fields, path, budget).map(Val::Record)
            }
            _ => refuse(path, "an object", value),
        },
        WitKind::Variant(cases) => variant(value, cases, path, budget),
        WitKind::Enum(labels) => label(value, labels, path).map(Val::Enum),
        WitKind::Flags(labels) => flags(value, labels, path).map(Val::Flags),
    }
}

/// A whole number, exactly. A float with no fraction counts as one, as in JSON Schema.
fn exact(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let float = number.as_f64()?;
    #[allow(clippy::cast_possible_truncation, reason = "within the range where a float's whole numbers are exact")]
    (float.fract() == 0.0 && float.abs() <= FLOAT_EXACT_MAX).then_some(float as i128)
}

fn whole<T>(value: &Value, path: &Path<'_>, min: T, max: T) -> Result<T, ArgumentError>
where
    T: TryFrom<i128> + std::fmt::Display,
{
    match exact(value).and_then(|number| T::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => refuse(path, format!("a whole number from {min} to {max}"), value),
    }
}

fn wide<T>(value: &Value, path: &Path<'_>, min: T, max: T) -> Result<T, ArgumentError>
where
    T: TryFrom<i128> + std::fmt::Display + std::str::FromStr,
{
    let canonical = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        plain && (digits == "0" && text == "0" || !digits.starts_with('0'))
    };
    if let Value::String(text) = value
        && canonical(text)
        && let Ok(number) = text.parse()
    {
        return Ok(number);
    }
    match exact(value).and_then(|number| T::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => refuse(path, format!("a whole number from {min} to {max}, or the same as text"), value),
    }
}

/// A number as a float; a whole number that no float holds is refused.
fn float64(value: &Value, path: &Path<'_>) -> Result<f64, ArgumentError> {
    let float = value.as_f64().filter(|float| float.is_finite());
    let Some(float) = float else {
        return refuse(path, "a number", value);
    };
    let rounded = (value.is_i64() || value.is_u64()) && exact_in(float) != exact(value);
    if rounded {
        return refuse(
            path,
            "a number that a 64-bit float holds exactly; give a smaller one or one with an exponent",
            value,
        );
    }
    Ok(float)
}

fn exact_in(float: f64) -> Option<i128> {
    #[allow(clippy::cast_possible_truncation, reason = "a float made from a 64-bit integer is far inside i128")]
    (float.fract() == 0.0).then_some(float as i128)
}

fn float32(value: &Value, path: &Path<'_>) -> Result<Val, ArgumentError> {
    let wide = float64(value, path)?;
    #[allow(clippy::cast_possible_truncation, reason = "what it loses is looked at below")]
    let float = wide as f32;
    let whole = value.is_i64() || value.is_u64();
    if !float.is_finite() || (whole && f64::from(float) != wide) {
        return refuse(path, "a number that a 32-bit float holds", value);
    }
    Ok(Val::Float32(float))
}

fn character(value: &Value, path: &Path<'_>) -> Result<Val, ArgumentError> {
    let mut chars = value.as_str().unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(Val::Char(c)),
        _ => refuse(path, "a text of exactly one character", value),
    }
}

fn text<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a str, ArgumentError> {
    match value {
        Value::String(text) if text.len() <= TEXT_BYTES_MAX => Ok(text),
        Value::String(_) => refuse(path, format!("a text of at most {TEXT_BYTES_MAX} bytes"), value),
        _ => refuse(path, "a text", value),
    }
}

fn bytes(value: &Value, path: &Path<'_>) -> Result<Val, ArgumentError> {
    let text = text(value, path)?;
    match BASE64.decode(text) {
        Ok(bytes) => Ok(Val::List(bytes.into_iter().map(Val::U8).collect())),
        Err(_) => refuse(path, "bytes as base64 text (standard alphabet)", value),
    }
}

fn items<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a [Value], ArgumentError> {
    match value {
        Value::Array(items) if items.len() <= LIST_ITEMS_MAX => Ok(items),
        Value::Array(_) => refuse(path, format!("at most {LIST_ITEMS_MAX} items"), value),
        _ => refuse(path, "a list", value),
    }
}

fn list(value: &Value, item: &WitType, path: &Path<'_>, budget: &mut Budget) -> Result<Vec<Val>, ArgumentError> {
    items(value, path)?
        .iter()
        .enumerate()
        .map(|(index, value)| read(value, item, &Path::Item(path, index), budget))
        .collect()
}

fn tuple(value: &Value, types: &[WitType], path: &Path<'_>, budget: &mut Budget) -> Result<Vec<Val>, ArgumentError> {
    let given = items(value, path)?;
    if given.len() != types.len() {
        return refuse(path, format!("a list of exactly {}", types.len()), value);
    }
    let pairs = given.iter().zip(types).enumerate();
    pairs.map(|(index, (value, ty))| read(value, ty, &Path::Item(path, index), budget)).collect()
}

/// The values of a record's fields or a function's parameters, whose names and types are given in their declared order.
pub(super) fn members<'a>(
    object: &Map<String, Value>,
    fields: impl Iterator<Item = (&'a str, &'a WitType)> + Clone,
    path: &Path<'_>,
    budget: &mut Budget,
) -> Result<Vec<(String, Val)>, ArgumentError> {
    let known = |given: &String| fields.clone().any(|(name, _)| is_property(name, given));
    if let Some(unknown) = object.keys().find(|name| !known(name)) {
        let names: Vec<_> = fields.map(|(name, _)| property_name(name)).collect();
        return Err(ArgumentError {
            path: path.to_string(),
            expected: match names.len() {
                0 => "no property".into(),
                _ => format!("only the properties {}", names.join(", ")),
            },
            found: format!("an unknown property {}", oncegate_contract::safe_text(unknown)),
        });
    }
    let mut values = Vec::with_capacity(fields.size_hint().0);
    for (name, ty) in fields {
        let path = Path::Member(path, name);
        let value = match object.get(&*property_name(name)) {
            Some(value) => read(value, ty, &path, budget)?,
            None if ty.is_option() => Val::Option(None),
            None => return Err(missing(&path, ty)),
        };
        values.push((name.to_owned(), value));
    }
    Ok(values)
}

fn missing(path: &Path<'_>, ty: &WitType) -> ArgumentError {
    ArgumentError { path: path.to_string(), expected: named(ty).into(), found: "nothing; it is required".into() }
}

const fn named(ty: &WitType) -> &'static str {
    match ty.kind {
        WitKind::Bool => "true or false",
        WitKind::String | WitKind::Char | WitKind::Enum(_) => "a text",
        WitKind::Bytes => "bytes as base64 text",
        WitKind::List(_) | WitKind::Tuple(_) | WitKind::Flags(_) => "a list",
        WitKind::Record(_) | WitKind::Variant(_) | WitKind::Result(..) => "an object",
        WitKind::F32 | WitKind::F64 => "a number",
        _ => "a whole number",
    }
}

/// The one member of `{"case": payload}`.
fn case_of<'a>(value: &'a Value, names: &[&str], path: &Path<'_>) -> Result<(usize, &'a Value), ArgumentError> {
    if let Value::Object(object) = value
        && let (1, Some((given, payload))) = (object.len(), object.iter().next())
        && let Some(index) = find(names.iter().copied(), given)
    {
        return Ok((index, payload));
    }
    let expected = format!("an object with exactly one of the properties {}", names.join(", "));
    match value {
        Value::Object(object) if object.len() == 1 => Err(ArgumentError {
            path: path.to_string(),
            expected,
            found: object
                .keys()
                .next()
                .map_or_else(String::new, |name| format!("the property {}", oncegate_contract::safe_text(name))),
        }),
        other => refuse(path, expected, other),
    }
}

fn payload(
    value: &Value,
    ty: Option<&WitType>,
    path: &Path<'_>,
    budget: &mut Budget,
) -> Result<Option<Box<Val>>, ArgumentError> {
    match ty {
        Some(ty) => Ok(Some(Box::new(read(value, ty, path, budget)?))),
        None if value.is_null() => Ok(None),
        None => refuse(path, "null: this case carries nothing", value),
    }
}

fn variant(value: &Value, cases: &[WitCase], path: &Path<'_>, budget: &mut Budget) -> Result<Val, ArgumentError> {
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let (index, inner) = case_of(value, &names, path)?;
    let case = &cases[index];
    let carried = payload(inner, case.ty.as_ref(), &Path::Case(path, &case.name), budget)?;
    Ok(Val::Variant(case.name.clone(), carried))
}

fn result(
    value: &Value,
    (ok, err): (Option<&WitType>, Option<&WitType>),
    path: &Path<'_>,
    budget: &mut Budget,
) -> Result<Val, ArgumentError> {
    let (index, inner) = case_of(value, &["ok", "err"], path)?;
    Ok(Val::Result(if index == 0 {
        Ok(payload(inner, ok, &Path::Case(path, "ok"), budget)?)
    } else {
        Err(payload(inner, err, &Path::Case(path, "err"), budget)?)
    }))
}

/// WIT names have no `_`, so a model that writes it for `-` means the same name.
fn find<'a>(mut names: impl Iterator<Item = &'a str>, given: &str) -> Option<usize> {
    names.position(|name| name == given || is_property(name, given))
}

fn label(value: &Value, labels: &[WitLabel], path: &Path<'_>) -> Result<String, ArgumentError> {
    let names = || labels.iter().map(|label| label.name.as_str());
    match value.as_str().and_then(|given| find(names(), given)) {
        Some(index) => Ok(labels[index].name.clone()),
        None => refuse(path, format!("one of {}", names().collect::<Vec<_>>().join(", ")), value),
    }
}

fn flags(value: &Value, labels: &[WitLabel], path: &Path<'_>) -> Result<Vec<String>, ArgumentError> {
    let mut set = Vec::new();
    for (index, value) in items(value, path)?.iter().enumerate() {
        let path = Path::Item(path, index);
        let name = label(value, labels, &path)?;
        if set.contains(&name) {
            return refuse(&path, "each name once", value);
        }
        set.push(name);
    }
    Ok(set)
}
