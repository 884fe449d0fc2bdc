//! One message of a client: a bounded line of input, read in the one way that leaves no second reading.

use std::io::{BufRead, Read};

use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId};
use serde_json::Value;

use crate::strict;

/// Bytes of one message: tools take identifiers and text, not files.
pub const LINE_BYTES_MAX: usize = 8 << 20;
/// In front of what an older client asks, once it is given a name of our own.
pub const PREFIX: &str = "dev.oncegate/2025-11-25/";
/// MCP's `_meta` key by which a request of the newer revision says that it is one.
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// With its end, if it had one.
    Text(Vec<u8>),
    /// It was longer than [`LINE_BYTES_MAX`], and is gone.
    TooLong,
}

/// What the client is told of a line, and under which id.
pub type Refusal = Box<(ErrorData, Option<RequestId>)>;

/// A message; none for what may be ignored.
///
/// # Errors
/// What the client is told of a line that is no message.
pub fn parse(line: &[u8]) -> Result<Option<Box<ClientJsonRpcMessage>>, Refusal> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let refusal = |error: ErrorData, id: Option<RequestId>| Box::new((error, id));
    let mut json =
        strict::json(line).map_err(|error| refusal(ErrorData::parse_error(format!("no JSON: {error}"), None), None))?;
    // The SDK takes -0 and 1.0 for whole, and would answer under an id that was not given.
    if json.get("id").is_some_and(Value::is_f64) {
        return Err(refusal(ErrorData::invalid_request("an id is a text or a whole number", None), None));
    }
    let id = json.get("id").cloned().and_then(|id| serde_json::from_value::<RequestId>(id).ok());
    let asks_nothing = json.get("method").is_some() && json.get("id").is_none();
    rename(&mut json);
    match serde_json::from_value(json) {
        Ok(message) => Ok(Some(Box::new(message))),
        // A notification that nobody knows wants no answer.
        Err(_) if asks_nothing => Ok(None),
        Err(_) => Err(refusal(ErrorData::invalid_request("this is no message of MCP", None), id)),
    }
}

/// Reads lines until the end, holding no more of one than may be taken.
pub fn read(mut from: impl BufRead, mut take: impl FnMut(Line) -> bool) {
    loop {
        let mut bytes = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        match from.by_ref().take(limit).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let whole = bytes.last() == Some(&b'\n');
        let line = if whole || bytes.len() <= LINE_BYTES_MAX { Line::Text(bytes) } else { Line::TooLong };
        if matches!(line, Line::TooLong) && !skip_line(&mut from) {
            take(line);
            return;
        }
        if !take(line) {
            return;
        }
    }
}

/// Reads on behind the end of the line; false at the end of all.
fn skip_line(from: &mut impl BufRead) -> bool {
    loop {
        let (used, found) = match from.fill_buf() {
            Ok([]) | Err(_) => return false,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        from.consume(used);
        if found {
            return true;
        }
    }
}

/// What an older client says of tasks gets a name of our own.
pub fn rename(message: &mut Value) -> bool {
    let params = &message["params"];
    if params["_meta"].get(VERSION_KEY).is_some() {
        return false;
    }
    let method = match message["method"].as_str() {
        Some("tools/call") if params.get("task").is_some_and(|task| !task.is_null()) => "tools/call",
        Some(method @ ("tools/list" | "tasks/get" | "tasks/result" | "tasks/list" | "tasks/cancel")) => method,
        _ => return false,
    };
    message["method"] = format!("{PREFIX}{method}").into();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<Option<usize>> {
        let mut lines = Vec::new();
        read(input, |line| {
            lines.push(match line {
                Line::Text(bytes) => Some(bytes.len()),
                Line::TooLong => None,
            });
            true
        });
        lines
    }

    #[test]
    fn a_line_is_bounded_and_the_next_one_is_whole() {
        let mut input = vec![b'x'; LINE_BYTES_MAX * 2];
        input.extend(b"\nshort\nlast");
        assert_eq!(lines(&input), [None, Some(6), Some(4)]);
        assert_eq!(lines(&vec![b'x'; LINE_BYTES_MAX + 1]), [None]);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn what_is_no_message_is_told_so() {
        assert!(parse(b" \r\n").unwrap().is_none());
        assert!(parse(br#"{"jsonrpc":"2.0","method":"notifications/strange"}"#).is_ok());
        let (error, id) = *parse(b"{").unwrap_err();
        assert_eq!((error.code.0, id), (-32700, None));
        let (error, id) = *parse(br#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#).unwrap_err();
        assert_eq!((error.code.0, id), (-32700, None));
        let (error, id) = *parse(br#"{"jsonrpc":"2.0","id":7}"#).unwrap_err();
        assert_eq!((error.code.0, id), (-32600, Some(RequestId::Number(7))));
        for id in ["1.5", "1.0", "-0", "1e0", "99999999999999999999"] {
            let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let (error, id) = *parse(ping.as_bytes()).unwrap_err();
            assert_eq!((error.code.0, id), (-32600, None), "{ping}");
        }
        let deep = format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(parse(deep.as_bytes()).unwrap_err().0.code.0, -32700);
    }
}
