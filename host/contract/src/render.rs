//! Writing the whole request: every declared member once, in declared order, by the host alone.

mod body;
mod line;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::FieldError;
use crate::field::Role;
use crate::limits::{BODY_BYTES_MAX, URL_BYTES_MAX};
use crate::operation::Operation;
use crate::place::Place;
use crate::resolve::Resolved;
use crate::value::Value;

pub use line::check_base_url;

/// A request without credential. The host stores it with the dispatch and sends exactly this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// Headers that the contract declares, names in lower case; framing and host are the sender's.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(with = "crate::value::base64_text")]
    pub body: Vec<u8>,
}

/// One member that is written.
pub(crate) struct Member<'a> {
    pub(crate) place: &'a Place,
    pub(crate) value: &'a Value,
    pub(crate) media_type: Option<&'a str>,
    pub(crate) filename: Option<&'a str>,
}

/// Writes the request of an operation below `base_url`.
///
/// The downstream key is written to `reference` and to the provider's dedupe place. Nothing else
/// than declared members is ever written, and no value can add, move or end a member.
///
/// # Errors
/// [`FieldError::Invalid`] for a value that cannot be written at its place without changing the
/// request's shape, for a missing member, and for a missing downstream key.
pub fn render(
    operation: &Operation,
    base_url: &str,
    resolved: &Resolved,
    downstream_key: Option<&str>,
) -> Result<Request, FieldError> {
    if operation.query.is_some() {
        return Err(FieldError::invalid("request", "a question to a database is not written as HTTP"));
    }
    let key = host_key(operation, downstream_key)?;
    let members = members(operation, resolved, key.as_ref())?;
    let url = line::url(operation, base_url, &members)?;
    if url.len() > URL_BYTES_MAX {
        return Err(FieldError::invalid("url", format!("the URL is longer than {URL_BYTES_MAX} bytes")));
    }
    let (content_type, body) = body::write(operation.body, &members)?;
    if body.len() > BODY_BYTES_MAX {
        return Err(FieldError::invalid("body", format!("the body is longer than {BODY_BYTES_MAX} bytes")));
    }
    let mut headers: Vec<_> = content_type.map(|value| ("content-type".to_owned(), value)).into_iter().collect();
    headers.extend(line::headers(&members)?);
    Ok(Request { method: operation.method.clone(), url, headers, body })
}

/// The values of an operation's bound places, by place; an optional field that is absent has none.
///
/// # Errors
/// [`FieldError::Invalid`] for a field that is not resolved, and for text with a NUL, which databases
/// end a text at.
pub fn bound_values<'a>(
    operation: &'a Operation,
    resolved: &'a Resolved,
) -> Result<BTreeMap<&'a str, Option<&'a Value>>, FieldError> {
    let mut values = BTreeMap::new();
    for field in &operation.fields {
        let Some(Place::Bind(name)) = &field.at else { continue };
        let value = resolved.field(&field.name).map(|found| &found.value);
        if value.is_none() && !field.optional {
            return Err(FieldError::invalid(&field.name, "the field is not resolved"));
        }
        if value.is_some_and(|value| !matches!(value, Value::Bytes(_)) && text(value).contains('\0')) {
            return Err(FieldError::invalid(&field.name, "a NUL has no place in a bound text"));
        }
        values.insert(name.as_str(), value);
    }
    Ok(values)
}

fn host_key(operation: &Operation, downstream_key: Option<&str>) -> Result<Option<Value>, FieldError> {
    if !operation.needs_downstream_key() {
        return Ok(None);
    }
    match downstream_key {
        Some(key) => Ok(Some(Value::Text(key.to_owned()))),
        None => Err(FieldError::invalid("reference", "the operation needs the host's downstream key")),
    }
}

/// The members in declared order, then the host's own.
fn members<'a>(
    operation: &'a Operation,
    resolved: &'a Resolved,
    key: Option<&'a Value>,
) -> Result<Vec<Member<'a>>, FieldError> {
    let mut members = Vec::new();
    for field in &operation.fields {
        let Some(place) = &field.at else { continue };
        let found = resolved.field(&field.name);
        let may_lack = field.optional || field.role == Role::Generated;
        let whole = matches!(place, Place::Path(_) | Place::Body);
        match found {
            Some(found) => members.push(Member {
                place,
                value: &found.value,
                media_type: field.media_type.as_deref(),
                filename: field.filename.as_deref(),
            }),
            None if may_lack && !whole => {}
            None => {
                return Err(FieldError::invalid(&field.name, "the field is not resolved"));
            }
        }
    }
    if let Some(value) = key {
        let mut places: Vec<&Place> = operation.reference.iter().collect();
        places.extend(operation.provider.at.iter().filter(|at| operation.reference.as_ref() != Some(*at)));
        members.extend(places.into_iter().map(|place| Member { place, value, media_type: None, filename: None }));
    }
    Ok(members)
}

/// The text of a value where text is written.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Decimal(text) => text.clone(),
        Value::Json(json) => json.to_string(),
        Value::Bytes(bytes) => crate::value::base64_encode(bytes),
        Value::Integer(_) | Value::Boolean(_) => value.canonical(),
    }
}
