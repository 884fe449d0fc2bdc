//! JSON to typed values and back, by the tool's WIT types.
//!
//! What an agent wrote is never adjusted in silence: a value that the type cannot hold exactly is
//! an error that names the place, what was asked and what was given. 64-bit integers are numbers,
//! and are taken as text too.

mod bounds;
mod from_val;
mod path;
mod to_val;

use serde_json::{Map, Value};
use wasmtime::component::Val;

use crate::describe::{ToolDescription, WitKind, WitType};
use crate::schema::property;

use bounds::Budget;
use path::Path;

/// Bytes of one text or byte string in arguments or result: more than a model writes or reads.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Items of one list.
pub const LIST_ITEMS_MAX: usize = 100_000;
/// Values in one call's arguments, and in one result; each costs tens of bytes of host memory.
pub const VALUES_MAX: usize = 500_000;

/// Why arguments are not what the tool takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: expected {expected}, got {found}", place(.path))]
pub struct ArgumentError {
    /// JSON pointer to the value; empty: the arguments as a whole.
    pub path: String,
    /// What the tool takes there.
    pub expected: String,
    /// What was given; a text of the agent's is only repeated when it is harmless.
    pub found: String,
}

/// Why a result has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool's result{} cannot be given to the agent: {why}", in_place(.path))]
pub struct ResultError {
    /// JSON pointer into the result; empty: the result as a whole.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
    /// It has a JSON form and is larger than what is given to an agent.
    pub too_large: bool,
}

fn place(path: &str) -> String {
    if path.is_empty() { "the arguments".into() } else { format!("argument {path}") }
}

fn in_place(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at {path}") }
}

/// What a tool's function came to.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolResult {
    /// `ok`, or what a function without `result<…>` returned.
    Ok(Value),
    /// `err`: the tool says that it failed.
    Err(Value),
}

/// The function's parameters from the agent's arguments; `null` counts as no arguments.
///
/// # Errors
/// The first value that does not fit its type.
pub fn to_vals(arguments: &Value, tool: &ToolDescription) -> Result<Vec<Val>, ArgumentError> {
    let empty = Map::new();
    let object = match arguments {
        Value::Object(object) => object,
        Value::Null => &empty,
        other => {
            return Err(ArgumentError {
                path: String::new(),
                expected: "an object with one property for each parameter".into(),
                found: bounds::kind_of(other),
            });
        }
    };
    let mut budget = Budget::default();
    if let (true, [(_, ty)]) = (tool.spread, &tool.params[..]) {
        return Ok(vec![to_val::read(arguments_or_empty(arguments), ty, &Path::Root, &mut budget)?]);
    }
    let params = tool.params.iter().map(|(name, ty)| (name.as_str(), ty));
    let values = to_val::members(object, params, &Path::Root, &mut budget)?;
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

fn arguments_or_empty(arguments: &Value) -> &Value {
    static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Map::new().into());
    if arguments.is_null() { &EMPTY } else { arguments }
}

/// The arguments in their one canonical JSON form: every property present, integers as numbers.
///
/// Two ways to write the same arguments give one form, so a source that points into them sees one
/// value.
///
/// # Errors
/// If a float among them is no JSON number.
pub fn canonical_arguments(vals: &[Val], tool: &ToolDescription) -> Result<Value, ResultError> {
    let mut budget = Budget::default();
    if let (true, [val], [(_, ty)]) = (tool.spread, vals, &tool.params[..]) {
        return from_val::write(val, ty, &Path::Root, &mut budget);
    }
    let mut object = Map::with_capacity(vals.len());
    for (val, (name, ty)) in vals.iter().zip(&tool.params) {
        let path = Path::Member(&Path::Root, name);
        object.insert(property(name), from_val::write(val, ty, &path, &mut budget)?);
    }
    Ok(object.into())
}

/// The agent's JSON from what the function returned.
///
/// # Errors
/// If a value has no JSON form (a float that is no number) or the result is too large.
pub fn result_to_json(vals: &[Val], tool: &ToolDescription) -> Result<ToolResult, ResultError> {
    let mut budget = Budget::default();
    let mut side = |val: Option<&Val>, ty: Option<&WitType>| match (val, ty) {
        (Some(val), Some(ty)) => from_val::write(val, ty, &Path::Root, &mut budget),
        _ => Ok(Value::Null),
    };
    match (vals.first(), &tool.result) {
        (None, None) => Ok(ToolResult::Ok(Value::Null)),
        (Some(Val::Result(outcome)), Some(ty)) => {
            let (ok, err) = match &ty.kind {
                WitKind::Result(ok, err) => (ok.as_deref(), err.as_deref()),
                _ => return Err(from_val::mismatch(&Path::Root, ty)),
            };
            match outcome {
                Ok(val) => side(val.as_deref(), ok).map(ToolResult::Ok),
                Err(val) => side(val.as_deref(), err).map(ToolResult::Err),
            }
        }
        (Some(val), Some(ty)) => side(Some(val), Some(ty)).map(ToolResult::Ok),
        _ => Err(ResultError {
            path: String::new(),
            why: "the function returned another number of values than it declares".into(),
            too_large: false,
        }),
    }
}

#[cfg(test)]
mod tests;
