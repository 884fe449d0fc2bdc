//! An MCP client's bytes: lines, JSON with one reading, headers and the facts in them.

use http::{HeaderMap, HeaderName, HeaderValue};
use oncegate::frame::{self, Line};
use oncegate::{facts, strict};
use oncegate_sandbox::ClientKey;
use oncegate_sandbox::policy::{Policy, Setter};
use serde_json::Value;

pub(crate) fn run(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    match which % 3 {
        0 => lines(rest),
        1 => json(rest),
        _ => headers(rest),
    }
}

/// The input of a server on stdio: every byte is in one line, and each line is a message or is told why not.
fn lines(bytes: &[u8]) {
    let mut came = Vec::new();
    // A small buffer, so that lines come in pieces.
    let input = std::io::BufReader::with_capacity(7, bytes);
    frame::read(input, |line| {
        match line {
            Line::Text(line) => {
                message(&line);
                came.extend(line);
            }
            Line::TooLong => panic!("no line here is too long"),
        }
        true
    });
    assert_eq!(came, bytes);
}

fn message(line: &[u8]) {
    match frame::parse(line) {
        Ok(None) => {}
        Ok(Some(message)) => {
            let json = strict::json(line).expect("a message has one reading");
            let id = json.get("id");
            let text = serde_json::to_vec(&message).expect("a message can be written");
            let again =
                frame::parse(&text).unwrap_or_else(|why| panic!("{:?}: {why:?}", String::from_utf8_lossy(&text)));
            assert!(again.is_some());
            let written: Value = serde_json::from_slice(&text).expect("JSON");
            assert_eq!(written.get("id"), id, "an answer would go to another request");
        }
        Err(refusal) => {
            let (error, id) = *refusal;
            assert!(error.code.0 < 0 && !error.message.is_empty());
            if let Some(id) = id {
                let said = serde_json::to_value(id).expect("an id is JSON");
                assert_eq!(strict::json(line).ok().as_ref().and_then(|json| json.get("id")), Some(&said));
            }
        }
    }
}

/// What is read has one reading, and it is everybody's.
fn json(bytes: &[u8]) {
    message(bytes);
    let Ok(json) = strict::json(bytes) else { return };
    let theirs: Value = serde_json::from_slice(bytes).expect("what is accepted is JSON to everybody");
    assert_eq!(json, theirs);
    let mut names = 0;
    count(&json, &mut names);
    // Colons outside of texts: one for each name that was written.
    assert_eq!(colons(bytes), names, "a name was written twice and read once");
    let mut renamed = json.clone();
    let was = frame::rename(&mut renamed);
    assert_eq!(was, renamed != json);
    if was {
        let method = renamed["method"].as_str().unwrap_or_default();
        assert_eq!(method.strip_prefix(frame::PREFIX), json["method"].as_str());
        assert!(!frame::rename(&mut renamed), "a name of ours is given another one");
    }
    if let Ok(facts) = facts::of_meta(Some(&json)) {
        let members = json.as_object().map_or(0, serde_json::Map::len);
        assert_eq!(facts.len(), members);
    }
}

fn count(json: &Value, names: &mut usize) {
    match json {
        Value::Array(items) => items.iter().for_each(|item| count(item, names)),
        Value::Object(members) => {
            *names += members.len();
            members.values().for_each(|value| count(value, names));
        }
        _ => {}
    }
}

fn colons(bytes: &[u8]) -> usize {
    let (mut found, mut quoted, mut escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => found += 1,
            _ => {}
        }
    }
    found
}

/// The headers of a request over HTTP, and the facts that come in one of them.
fn headers(bytes: &[u8]) {
    let mut map = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let name = halves.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = halves.next().and_then(|value| HeaderValue::from_bytes(value.trim_ascii()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            map.append(name, value);
        }
    }
    let twice = ["host", "authorization"].iter().any(|name| map.get_all(*name).iter().count() > 1);
    assert_eq!(strict::headers(&map).is_err(), twice);
    let _ = strict::no_session(&map);
    for value in &map {
        if let Ok(text) = value.1.to_str()
            && ClientKey::parse(text).is_ok()
        {
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()) && text.len() <= 255);
        }
    }
    let texts = map.get_all("oncegate-context").iter().filter_map(|value| value.to_str().ok());
    let Ok(said) = facts::of_header(texts) else { return };
    joined(&said);
}

/// Facts of a header hold what the policy lets a header say, and never overrule what is fixed.
fn joined(said: &facts::Facts) {
    let policy =
        Policy::parse("p.toml", "[context]\ntrigger = [\"header\"]\ntenant = [\"header\"]\n").expect("a policy");
    let fixed = facts::Facts::from([("tenant".to_owned(), "acme".to_owned())]);
    let rules = &policy.context;
    if let Ok(joined) = facts::join(rules, &fixed, &[(Setter::Header, said.clone())]) {
        assert_eq!(joined["tenant"], "acme");
        assert!(said.keys().all(|name| rules.may_set(name, Setter::Header)));
        assert!(said.iter().all(|(name, value)| joined.get(name) == Some(value)), "a fact was dropped");
        assert!(facts::stand(rules, &fixed, &joined).is_ok());
    }
}
