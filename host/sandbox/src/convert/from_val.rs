//! One typed value to one JSON value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use wasmtime::component::Val;

use super::bounds::Budget;
use super::path::Path;
use super::{LIST_ITEMS_MAX, ResultError, TEXT_BYTES_MAX, VALUES_MAX};
use crate::describe::{WitCase, WitField, WitKind, WitType};
use crate::schema::property;

fn oversize<T>(path: &Path<'_>, why: String) -> Result<T, ResultError> {
    Err(ResultError { path: path.to_string(), why, too_large: true })
}

fn refuse<T>(path: &Path<'_>, why: impl Into<String>) -> Result<T, ResultError> {
    Err(ResultError { path: path.to_string(), why: why.into(), too_large: false })
}

/// The value is of another type than the component declares; the engine would not let that happen.
pub(super) fn mismatch(path: &Path<'_>, ty: &WitType) -> ResultError {
    ResultError { path: path.to_string(), why: format!("it is not of the declared type {ty}"), too_large: false }
}

/// The JSON form of `val`, which is of type `ty`.
pub(super) fn write(val: &Val, ty: &WitType, path: &Path<'_>, budget: &mut Budget) -> Result<Value, ResultError> {
    if !budget.take() {
        return oversize(path, format!("it has more than {VALUES_MAX} values"));
    }
    match (val, &ty.kind) {
        (Val::Bool(value), WitKind::Bool) => Ok((*value).into()),
        (Val::U8(value), WitKind::U8) => Ok((*value).into()),
        (Val::U16(value), WitKind::U16) => Ok((*value).into()),
        (Val::U32(value), WitKind::U32) => Ok((*value).into()),
        (Val::U64(value), WitKind::U64) => Ok((*value).into()),
        (Val::S8(value), WitKind::S8) => Ok((*value).into()),
        (Val::S16(value), WitKind::S16) => Ok((*value).into()),
        (Val::S32(value), WitKind::S32) => Ok((*value).into()),
        (Val::S64(value), WitKind::S64) => Ok((*value).into()),
        (Val::Float32(value), WitKind::F32) => float(shortest(*value), path),
        (Val::Float64(value), WitKind::F64) => float(*value, path),
        (Val::Char(value), WitKind::Char) => Ok(value.to_string().into()),
        (Val::String(value), WitKind::String) => text(value, path),
        (Val::List(items), WitKind::Bytes) => bytes(items, ty, path),
        (Val::List(items), WitKind::List(item)) => list(items, item, path, budget),
        (Val::Option(None), WitKind::Option(_)) => Ok(Value::Null),
        (Val::Option(Some(val)), WitKind::Option(item)) => write(val, item, path, budget),
        (Val::Result(Ok(val)), WitKind::Result(ok, _)) => case("ok", val.as_deref(), ok.as_deref(), path, budget),
        (Val::Result(Err(val)), WitKind::Result(_, err)) => case("err", val.as_deref(), err.as_deref(), path, budget),
        (Val::Tuple(items), WitKind::Tuple(types)) if items.len() == types.len() => tuple(items, types, path, budget),
        (Val::Record(values), WitKind::Record(fields)) if values.len() == fields.len() => {
            record(values, fields, path, budget)
        }
        (Val::Variant(name, val), WitKind::Variant(cases)) => {
            let declared = cases.iter().find(|case: &&WitCase| case.name == *name);
            let declared = declared.ok_or_else(|| mismatch(path, ty))?;
            case(name, val.as_deref(), declared.ty.as_ref(), path, budget)
        }
        (Val::Enum(name), WitKind::Enum(_)) => Ok(name.clone().into()),
        (Val::Flags(names), WitKind::Flags(_)) => Ok(names.clone().into()),
        _ => Err(mismatch(path, ty)),
    }
}

/// The float that has the same shortest decimal text: 0.1 stays 0.1 and does not become
/// 0.10000000149011612.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

fn float(value: f64, path: &Path<'_>) -> Result<Value, ResultError> {
    match Number::from_f64(value) {
        Some(number) => Ok(number.into()),
        None => refuse(path, format!("{value} is not a JSON number")),
    }
}

fn text(value: &str, path: &Path<'_>) -> Result<Value, ResultError> {
    if value.len() > TEXT_BYTES_MAX {
        return oversize(path, format!("a text of {} bytes, {TEXT_BYTES_MAX} are allowed", value.len()));
    }
    Ok(value.into())
}

fn bytes(items: &[Val], ty: &WitType, path: &Path<'_>) -> Result<Value, ResultError> {
    if items.len() > TEXT_BYTES_MAX {
        return oversize(path, format!("{} bytes, {TEXT_BYTES_MAX} are allowed", items.len()));
    }
    let bytes: Option<Vec<u8>> = items
        .iter()
        .map(|item| match item {
            Val::U8(byte) => Some(*byte),
            _ => None,
        })
        .collect();
    let bytes = bytes.ok_or_else(|| mismatch(path, ty))?;
    Ok(STANDARD.encode(bytes).into())
}

fn list(items: &[Val], item: &WitType, path: &Path<'_>, budget: &mut Budget) -> Result<Value, ResultError> {
    if items.len() > LIST_ITEMS_MAX {
        return oversize(path, format!("a list of {}, {LIST_ITEMS_MAX} are allowed", items.len()));
    }
    items.iter().enumerate().map(|(index, val)| write(val, item, &Path::Item(path, index), budget)).collect()
}

fn tuple(items: &[Val], types: &[WitType], path: &Path<'_>, budget: &mut Budget) -> Result<Value, ResultError> {
    items
        .iter()
        .zip(types)
        .enumerate()
        .map(|(index, (val, ty))| write(val, ty, &Path::Item(path, index), budget))
        .collect()
}

fn record(
    values: &[(String, Val)],
    fields: &[WitField],
    path: &Path<'_>,
    budget: &mut Budget,
) -> Result<Value, ResultError> {
    let mut object = Map::with_capacity(fields.len());
    for ((_, val), field) in values.iter().zip(fields) {
        let path = Path::Member(path, &field.name);
        object.insert(property(&field.name), write(val, &field.ty, &path, budget)?);
    }
    Ok(object.into())
}

fn case(
    name: &str,
    val: Option<&Val>,
    ty: Option<&WitType>,
    path: &Path<'_>,
    budget: &mut Budget,
) -> Result<Value, ResultError> {
    let payload = match (val, ty) {
        (Some(val), Some(ty)) => write(val, ty, &Path::Case(path, name), budget)?,
        _ => Value::Null,
    };
    Ok(Map::from_iter([(name.to_owned(), payload)]).into())
}
