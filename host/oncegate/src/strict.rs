//! What a client may leave open to two readings, which is refused: a proxy in front could read the other.

use std::fmt;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, StatusCode};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::map::{Entry, Map};

/// Values in one message: far more than a call has, and no more than tens of megabytes when it is read.
const VALUES_MAX: usize = 100_000;
/// Header of revision 2025-11-25 for sessions, and the header that tells the revision.
const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
/// The first revision without sessions; revisions are dates, and are compared as texts.
pub const NEWER: &str = "2026-07-28";

/// Reads JSON in which each name stands once in its object.
///
/// # Errors
/// It is no JSON, a name is there twice, or there are more values than are read here.
pub fn json(text: &[u8]) -> serde_json::Result<Value> {
    let mut values = 0;
    let mut from = serde_json::Deserializer::from_slice(text);
    let value = Read { values: &mut values }.deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

/// Which answer a client gets, and why.
pub type Refused = (StatusCode, &'static str);

/// Looks at headers that stand for one thing.
///
/// # Errors
/// One is there twice.
pub fn headers(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.get_all(HOST).iter().count() > 1 || headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return Err((StatusCode::BAD_REQUEST, "Host and Authorization are given once"));
    }
    Ok(())
}

/// Looks for a session where there are none: it is somebody else's, or of a server that has gone, and its
/// client has to begin anew. The newer revision knows none.
///
/// # Errors
/// One is named.
pub fn no_session(headers: &HeaderMap) -> Result<(), Refused> {
    let revision = headers.get(REVISION).and_then(|revision| revision.to_str().ok());
    let newer = revision.is_some_and(|revision| revision >= NEWER);
    if headers.contains_key(SESSION) && !newer {
        return Err((StatusCode::NOT_FOUND, "there is no such session; none is needed here"));
    }
    Ok(())
}

/// Reads one value and what is in it. They are counted before they are built: a value takes some bytes on the way and
/// a hundred in memory.
struct Read<'a> {
    values: &'a mut usize,
}

impl Read<'_> {
    fn again(&mut self) -> Read<'_> {
        Read { values: self.values }
    }
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        *self.values += 1;
        if *self.values > VALUES_MAX {
            return Err(D::Error::custom(format!("a message has at most {VALUES_MAX} values")));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.again())? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            match object.entry(name) {
                Entry::Occupied(_) => return Err(A::Error::custom("a name stands twice in an object")),
                Entry::Vacant(place) => place.insert(members.next_value_seed(self.again())?),
            };
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_in_its_object() {
        let fine = br#"{"a":[1,-1,0.5,"x",true,null,{"a":{}}],"b":{"a":1}}"#;
        assert_eq!(json(fine).unwrap(), serde_json::from_slice::<Value>(fine).unwrap());
        for twice in [r#"{"a":1,"a":2}"#, r#"{"b":[{"a":1,"b":2,"a":1}]}"#, r#"{"a":1,"\u0061":2}"#] {
            let error = json(twice.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("twice"), "{twice}: {error}");
        }
        for wrong in [&b"{"[..], b"", b"1 2", b"\"\xff\"", b"\"\\ud800\""] {
            assert!(json(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn more_values_than_a_call_has_are_not_read() {
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert!(json(list(VALUES_MAX - 1).as_bytes()).is_ok());
        assert!(json(list(VALUES_MAX).as_bytes()).is_err());
    }

    #[test]
    fn one_host_one_token_and_no_session() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            pairs.iter().for_each(|(name, value)| {
                map.append(*name, value.parse().unwrap());
            });
            headers(&map).and_then(|()| no_session(&map)).map_err(|(status, _)| status.as_u16())
        };
        assert_eq!(of(&[("host", "a"), ("authorization", "Bearer x")]), Ok(()));
        assert_eq!(of(&[("host", "a"), ("host", "b")]), Err(400));
        assert_eq!(of(&[("authorization", "Bearer x"), ("authorization", "Bearer y")]), Err(400));
        assert_eq!(of(&[(REVISION, "2025-11-25"), (SESSION, "s")]), Err(404));
        assert_eq!(of(&[(SESSION, "s")]), Err(404));
        // The newer revision has no sessions to be wrong about.
        assert_eq!(of(&[(REVISION, "2026-07-28"), (SESSION, "s")]), Ok(()));
    }
}
