//! Reading hostile JSON: bounded depth and count, no member twice; and one canonical text for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};

/// Reads one JSON document from bytes that nobody vouches for.
///
/// A member that occurs twice is an error: two readers of such a document may disagree about what
/// it says.
///
/// # Errors
/// A text that tells why the bytes are not one acceptable document.
pub fn parse_json(bytes: &[u8]) -> Result<Json, String> {
    let left = Cell::new(JSON_VALUES_MAX);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Bounded { depth: JSON_DEPTH_MAX, left: &left };
    let json = seed.deserialize(&mut reader).map_err(|e| format!("not acceptable JSON: {e}"))?;
    reader.end().map_err(|e| format!("not acceptable JSON: {e}"))?;
    Ok(json)
}

#[derive(Clone, Copy)]
struct Bounded<'a> {
    depth: usize,
    left: &'a Cell<usize>,
}

impl Bounded<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("nested too deeply"))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Json, D::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        self.left.set(left);
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Json, E> {
        Ok(Json::Bool(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut elements = Vec::new();
        while let Some(element) = from.next_element_seed(inner)? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut members = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            let value = from.next_value_seed(inner)?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member occurs twice"));
            }
        }
        Ok(Json::Object(members))
    }
}

/// Compact text with sorted members at every level.
pub(crate) fn canonical(json: &Json) -> String {
    let mut out = String::new();
    write(json, JSON_DEPTH_MAX + 1, &mut out);
    out
}

fn write(json: &Json, depth: usize, out: &mut String) {
    match json {
        Json::Array(elements) if depth > 0 => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(element, depth - 1, out);
            }
            out.push(']');
        }
        Json::Object(members) if depth > 0 => {
            out.push('{');
            let sorted: BTreeMap<_, _> = members.iter().collect();
            for (i, (name, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Json::from(name.as_str()).to_string());
                out.push(':');
                write(value, depth - 1, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Whether a document that did not come through [`parse_json`] is as shallow as one that did.
pub(crate) fn is_shallow(json: &Json) -> bool {
    let mut open = vec![(json, 0_usize)];
    while let Some((at, depth)) = open.pop() {
        if depth > JSON_DEPTH_MAX {
            return false;
        }
        match at {
            Json::Array(elements) => open.extend(elements.iter().map(|e| (e, depth + 1))),
            Json::Object(members) => open.extend(members.values().map(|e| (e, depth + 1))),
            _ => {}
        }
    }
    true
}
