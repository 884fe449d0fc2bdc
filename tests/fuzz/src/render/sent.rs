//! Reads a rendered request back by other parsers, and compares every member with the declaration.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oncegate_contract::{BodyKind, Operation, PathPiece, Place, Request, Resolved, Value, parse_json};
use serde_json::Value as Json;
use url::form_urlencoded;

/// A member that has to be there, in the order in which it is written.
struct Member<'a> {
    place: &'a Place,
    value: Value,
}

pub(super) fn exactly_what_is_declared(operation: &Operation, resolved: &Resolved, key: &str, request: &Request) {
    let members = members(operation, resolved, key);
    assert_eq!(request.method, operation.method);
    url_is(operation, &members, request);
    headers_are(operation, &members, request);
    match operation.body {
        BodyKind::None => assert!(request.body.is_empty()),
        BodyKind::Form => form_is(&members, &request.body),
        BodyKind::Json => json_is(&members, &request.body),
        BodyKind::Multipart => multipart_is(&members, request),
        BodyKind::Bytes => {
            let body = members.iter().find(|member| *member.place == Place::Body).expect("a body");
            assert_eq!(request.body, raw(&body.value));
        }
    }
}

fn members<'a>(operation: &'a Operation, resolved: &Resolved, key: &str) -> Vec<Member<'a>> {
    let mut members = Vec::new();
    for field in &operation.fields {
        if let (Some(place), Some(found)) = (&field.at, resolved.field(&field.name)) {
            members.push(Member { place, value: found.value.clone() });
        }
    }
    let hosts = operation.reference.iter();
    let dedupe = operation.provider.at.iter().filter(|at| operation.reference.as_ref() != Some(*at));
    if operation.effect == oncegate_contract::EffectClass::Keyed {
        members.extend(hosts.chain(dedupe).map(|place| Member { place, value: Value::Text(key.to_owned()) }));
    }
    members
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Decimal(text) => text.clone(),
        Value::Json(json) => json.to_string(),
        Value::Bytes(bytes) => BASE64_STANDARD.encode(bytes),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
    }
}

fn raw(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        other => text(other).into_bytes(),
    }
}

fn named(members: &[Member<'_>], name: impl Fn(&Place) -> Option<&String>) -> Vec<(String, String)> {
    members.iter().filter_map(|member| Some((name(member.place)?.clone(), text(&member.value)))).collect()
}

fn url_is(operation: &Operation, members: &[Member<'_>], request: &Request) {
    let url = url::Url::parse(&request.url).expect("a URL");
    assert_eq!(url.origin().ascii_serialization(), "https://host.example:8443");
    assert!(url.fragment().is_none() && url.username().is_empty() && url.password().is_none());
    let segments: Vec<&str> = url.path_segments().expect("a path").collect();
    assert_eq!(segments.len(), 1 + operation.path.segments.len(), "{}", request.url);
    assert_eq!(segments[0], "base");
    for (segment, pieces) in segments[1..].iter().zip(&operation.path.segments) {
        let wanted: String = pieces.iter().map(|piece| piece_text(piece, members)).collect();
        assert_eq!(decoded(segment), wanted, "{}", request.url);
    }
    let constants = operation.path.query.len();
    let found: Vec<_> = url.query_pairs().into_owned().collect();
    let wanted = named(members, |place| match place {
        Place::Query(name) => Some(name),
        _ => None,
    });
    assert_eq!(found.len(), constants + wanted.len());
    assert_eq!(found[constants..], wanted);
}

fn piece_text(piece: &PathPiece, members: &[Member<'_>]) -> String {
    match piece {
        PathPiece::Fixed(fixed) => fixed.clone(),
        PathPiece::Placeholder(name) => {
            let place = Place::Path(name.clone());
            members.iter().find(|member| *member.place == place).map(|member| text(&member.value)).expect("a value")
        }
    }
}

/// One decoding, by the rules of forms with `+` standing for itself.
fn decoded(segment: &str) -> String {
    let form = format!("v={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(form.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn headers_are(operation: &Operation, members: &[Member<'_>], request: &Request) {
    for (name, value) in &request.headers {
        assert!(http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok());
        assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {value:?}");
    }
    let wanted = named(members, |place| match place {
        Place::Header(name) => Some(name),
        _ => None,
    });
    let framing = usize::from(operation.body != BodyKind::None);
    assert_eq!(request.headers.iter().take(framing).filter(|(name, _)| name == "content-type").count(), framing);
    assert_eq!(request.headers[framing..], wanted);
}

fn form_is(members: &[Member<'_>], body: &[u8]) {
    let found: Vec<_> = form_urlencoded::parse(body).into_owned().collect();
    let wanted = named(members, |place| match place {
        Place::Form(name) => Some(name),
        _ => None,
    });
    assert_eq!(found, wanted);
}

fn json_is(members: &[Member<'_>], body: &[u8]) {
    let json: Json = serde_json::from_slice(body).expect("JSON");
    let mut places = Vec::new();
    for member in members {
        let Place::Json(pointer) = member.place else { continue };
        let wanted = match &member.value {
            Value::Integer(number) => Json::from(*number),
            Value::Boolean(truth) => Json::from(*truth),
            Value::Json(json) => json.clone(),
            other => Json::from(text(other)),
        };
        assert_eq!(json.pointer(&pointer.to_string()), Some(&wanted), "{pointer}");
        places.push(pointer.to_string());
    }
    let mut leaves = 0;
    count(&json, &mut String::new(), &places, &mut leaves);
    assert_eq!(leaves, places.len(), "{json}");
    // No reader of the body can find a name twice.
    assert!(parse_json(body).is_ok() || body.len() > 1 << 20, "{json}");
}

/// Counts what is not only the way to a declared place.
fn count(json: &Json, path: &mut String, places: &[String], leaves: &mut usize) {
    match json {
        Json::Object(members) if !places.contains(path) => {
            for (name, value) in members {
                let before = path.len();
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                count(value, path, places, leaves);
                path.truncate(before);
            }
        }
        _ => *leaves += 1,
    }
}

fn multipart_is(members: &[Member<'_>], request: &Request) {
    let (_, content_type) = &request.headers[0];
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
    let mut rest = request.body.as_slice();
    for member in members {
        let Place::Part(name) = member.place else { continue };
        rest = rest.strip_prefix(format!("--{boundary}\r\n").as_bytes()).expect("a part");
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").expect("the end of its head");
        let head = std::str::from_utf8(&rest[..end]).expect("a text");
        assert!(head.starts_with(&format!("Content-Disposition: form-data; name=\"{name}\"")), "{head}");
        assert!(head.lines().count() <= 2, "{head}");
        rest = &rest[end + 4..];
        let end = format!("\r\n--{boundary}");
        let wanted = raw(&member.value);
        assert_eq!(rest.windows(end.len()).position(|window| window == end.as_bytes()), Some(wanted.len()));
        assert_eq!(rest[..wanted.len()], wanted);
        rest = &rest[wanted.len() + 2..];
    }
    assert_eq!(rest, format!("--{boundary}--\r\n").as_bytes());
}
