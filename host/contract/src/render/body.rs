//! The bodies: form, JSON, multipart, bytes. Each is one serialisation of ours, the same every time.

use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::line::encode;
use super::{Member, text};
use crate::error::FieldError;
use crate::operation::BodyKind;
use crate::place::Place;
use crate::pointer::{Pointer, Segment};
use crate::value::{Value, hex};

type Written = (Option<String>, Vec<u8>);

pub(super) fn write(kind: BodyKind, members: &[Member<'_>]) -> Result<Written, FieldError> {
    match kind {
        BodyKind::None => Ok((None, Vec::new())),
        BodyKind::Form => Ok((Some("application/x-www-form-urlencoded".into()), form(members))),
        BodyKind::Json => Ok((Some("application/json".into()), json(members)?)),
        BodyKind::Multipart => Ok(multipart(members)),
        BodyKind::Bytes => bytes(members),
    }
}

fn form(members: &[Member<'_>]) -> Vec<u8> {
    let pairs = members.iter().filter_map(|member| match member.place {
        Place::Form(name) => Some(format!("{}={}", encode(name), encode(&text(member.value)))),
        _ => None,
    });
    pairs.collect::<Vec<_>>().join("&").into_bytes()
}

fn json(members: &[Member<'_>]) -> Result<Vec<u8>, FieldError> {
    let mut body = Map::new();
    for member in members {
        if let Place::Json(pointer) = member.place {
            insert(&mut body, pointer, json_value(member.value))?;
        }
    }
    Ok(Json::Object(body).to_string().into_bytes())
}

/// Decimals are strings: a JSON number is a float to most readers.
fn json_value(value: &Value) -> Json {
    match value {
        Value::Integer(number) => Json::from(*number),
        Value::Boolean(truth) => Json::from(*truth),
        Value::Json(json) => json.clone(),
        other => Json::from(text(other)),
    }
}

fn insert(body: &mut Map<String, Json>, pointer: &Pointer, value: Json) -> Result<(), FieldError> {
    let taken = || FieldError::invalid(&pointer.to_string(), "two members would be written at one place");
    let names: Vec<&String> = pointer
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            Segment::Name(name) => Some(name),
            Segment::Any => None,
        })
        .collect();
    let (last, way) = names.split_last().ok_or_else(taken)?;
    let mut at = body;
    for name in way {
        let next = at.entry(name.as_str()).or_insert_with(|| Json::Object(Map::new()));
        at = next.as_object_mut().ok_or_else(taken)?;
    }
    match at.insert((*last).clone(), value) {
        None => Ok(()),
        Some(_) => Err(taken()),
    }
}

/// The boundary follows from the parts, so a request that is sent again is the same bytes.
fn multipart(members: &[Member<'_>]) -> Written {
    let parts: Vec<_> = members.iter().filter_map(part).collect();
    let mut hash = Sha256::new();
    for (head, content) in &parts {
        hash.update((head.len() as u64).to_le_bytes());
        hash.update(head);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    // A part cannot contain the boundary: it would have to contain its own hash.
    let boundary = format!("oncegate-{}", hex(&hash.finalize()).get(..48).unwrap_or_default());
    let mut body = Vec::new();
    for (head, content) in &parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (Some(format!("multipart/form-data; boundary={boundary}")), body)
}

/// Names, file names and media types are the contract's, checked when it was parsed.
fn part(member: &Member<'_>) -> Option<(String, Vec<u8>)> {
    let Place::Part(name) = member.place else {
        return None;
    };
    let mut head = format!("Content-Disposition: form-data; name=\"{name}\"");
    if let Some(filename) = member.filename {
        head.push_str(&format!("; filename=\"{filename}\""));
    }
    head.push_str("\r\n");
    if let Some(media_type) = member.media_type {
        head.push_str(&format!("Content-Type: {media_type}\r\n"));
    }
    Some((head, raw(member.value)))
}

fn raw(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        other => text(other).into_bytes(),
    }
}

fn bytes(members: &[Member<'_>]) -> Result<Written, FieldError> {
    let body = members.iter().find(|member| *member.place == Place::Body);
    let body = body.ok_or_else(|| FieldError::invalid("body", "the body is not resolved"))?;
    let default = match body.value {
        Value::Json(_) => "application/json",
        Value::Text(_) => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    Ok((Some(body.media_type.unwrap_or(default).to_owned()), raw(body.value)))
}
