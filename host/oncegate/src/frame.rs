//! One message of a client: a bounded line of input, read in the one way that leaves no second reading.

use std::io::BufRead;

use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorData, JsonObject, Request, RequestId,
    RequestMetaObject,
};
use serde_json::Value;

use crate::strict;

/// Bytes of one message: tools take identifiers and text, not files.
pub const LINE_BYTES_MAX: usize = 8 << 20;
/// Bytes of room that are kept for the next lines: what a pipe holds.
const ROOM_BYTES: usize = 64 << 10;
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
    if let Some(id) = id.clone().filter(|_| is_plain_call(&json)) {
        return Ok(plain_call(json, id).map(Box::new));
    }
    rename(&mut json);
    match serde_json::from_value(json) {
        Ok(message) => Ok(Some(Box::new(message))),
        // A notification that nobody knows wants no answer.
        Err(_) if asks_nothing => Ok(None),
        Err(_) => Err(refusal(ErrorData::invalid_request("this is no message of MCP", None), id)),
    }
}

/// Whether it is a call of a tool in its plain form, which is nearly all that is said. The SDK would read it as one of
/// twenty other requests first; this form it reads in no other way.
fn is_plain_call(message: &Value) -> bool {
    let only = |of: &JsonObject, names: &[&str]| of.keys().all(|name| names.contains(&name.as_str()));
    let Value::Object(members) = message else { return false };
    let Some(Value::Object(params)) = members.get("params") else { return false };
    let is_object = |name: &str| params.get(name).is_none_or(Value::is_object);
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    text("method") == Some("tools/call")
        && text("jsonrpc") == Some("2.0")
        && only(members, &["jsonrpc", "id", "method", "params"])
        && only(params, &["name", "arguments", "_meta"])
        && params.get("name").is_some_and(Value::is_string)
        && is_object("arguments")
        && is_object("_meta")
}

/// The message of a plain call.
fn plain_call(mut message: Value, id: RequestId) -> Option<ClientJsonRpcMessage> {
    let Value::Object(mut params) = message.get_mut("params")?.take() else { return None };
    let Value::String(name) = params.remove("name")? else { return None };
    let mut object = |name: &str| match params.remove(name) {
        Some(Value::Object(members)) => Some(members),
        _ => None,
    };
    let mut call = CallToolRequestParams::new(name);
    call.arguments = object("arguments");
    let mut request = Request::new(call);
    if let Some(meta) = object("_meta") {
        request.extensions.insert(RequestMetaObject::from(meta));
    }
    Some(ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), id))
}

/// Reads lines until the end, holding no more of one than may be taken.
pub fn read(mut from: impl BufRead, mut take: impl FnMut(Line) -> bool) {
    let mut cutter = Cutter::default();
    loop {
        let count = match from.fill_buf() {
            Ok([]) | Err(_) => break,
            Ok(bytes) => {
                cutter.push(bytes);
                bytes.len()
            }
        };
        from.consume(count);
        while let Some(line) = cutter.line() {
            if !take(line) {
                return;
            }
        }
    }
    if let Some(line) = cutter.end() {
        take(line);
    }
}

/// Cuts input into lines as it comes, holding no more of one than may be taken.
#[derive(Debug, Default)]
pub struct Cutter {
    bytes: Vec<u8>,
    /// Where the next line begins.
    from: usize,
    /// Up to where there is no end of it.
    searched: usize,
    /// The line that has begun is too long; what was read of it is gone.
    too_long: bool,
}

impl Cutter {
    /// Takes what was read.
    pub fn push(&mut self, read: &[u8]) {
        if self.from == self.bytes.len() {
            self.restart();
        } else if self.from > 0 {
            self.bytes.drain(..self.from);
            (self.searched, self.from) = (self.searched - self.from, 0);
        }
        self.bytes.extend_from_slice(read);
    }

    /// The next whole line that was read, if there is one.
    pub fn line(&mut self) -> Option<Line> {
        match memchr::memchr(b'\n', self.bytes.get(self.searched..).unwrap_or_default()) {
            Some(at) => {
                let end = self.searched + at + 1;
                let line = self.text(end);
                (self.from, self.searched, self.too_long) = (end, end, false);
                Some(line)
            }
            None => {
                self.searched = self.bytes.len();
                if self.too_long || self.bytes.len() - self.from > LINE_BYTES_MAX {
                    self.too_long = true;
                    self.restart();
                }
                None
            }
        }
    }

    /// What is left at the end of all, if anything is.
    pub fn end(mut self) -> Option<Line> {
        let left = self.too_long || self.from < self.bytes.len();
        left.then(|| self.text(self.bytes.len()))
    }

    /// One line, with its end where it has one.
    fn text(&mut self, end: usize) -> Line {
        let bytes = self.bytes.get(self.from..end).unwrap_or_default();
        let most = LINE_BYTES_MAX + usize::from(bytes.last() == Some(&b'\n'));
        if self.too_long || bytes.len() > most { Line::TooLong } else { Line::Text(bytes.to_vec()) }
    }

    /// Forgets what was read, and does not keep the room that one long line took.
    fn restart(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ROOM_BYTES);
        (self.from, self.searched) = (0, 0);
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
    fn lines_are_the_same_however_they_come() {
        let mut input = b"one\n\ntwo\r\n".to_vec();
        input.extend(vec![b'x'; LINE_BYTES_MAX]);
        input.extend(b"\n");
        input.extend(vec![b'y'; LINE_BYTES_MAX + 1]);
        input.extend(b"\nthree\nlast");
        let whole = lines(&input);
        assert_eq!(whole, [Some(4), Some(1), Some(5), Some(LINE_BYTES_MAX + 1), None, Some(6), Some(4)]);
        for piece in [7, 4_096, LINE_BYTES_MAX + 20] {
            let mut cutter = Cutter::default();
            let mut cut = Vec::new();
            for bytes in input.chunks(piece) {
                cutter.push(bytes);
                cut.extend(std::iter::from_fn(|| cutter.line()));
                assert!(cutter.bytes.len() <= LINE_BYTES_MAX + piece + 20, "{}", cutter.bytes.len());
            }
            cut.extend(cutter.end());
            let lengths = cut.iter().map(|line| match line {
                Line::Text(bytes) => Some(bytes.len()),
                Line::TooLong => None,
            });
            assert_eq!(lengths.collect::<Vec<_>>(), whole, "{piece}");
        }
    }

    #[test]
    fn a_plain_call_is_read_as_the_sdk_reads_it() {
        let plain = [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}"#,
            r#"{"id":"x","params":{"arguments":{},"name":"a"},"method":"tools/call","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"progressToken":3,"b":{}},"name":"",
                "arguments":{"b":[1,-1,0.5,"x",null,{"a":18446744073709551615}],"a":true}}}"#,
        ];
        let others = [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","_meta":null}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":null,"task":null}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","requestState":"s"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","more":1},"more":1}"#,
        ];
        for (text, is_plain) in plain.iter().map(|text| (text, true)).chain(others.iter().map(|text| (text, false))) {
            let json = strict::json(text.as_bytes()).unwrap();
            assert_eq!(is_plain_call(&json), is_plain, "{text}");
            let slow: ClientJsonRpcMessage = serde_json::from_value(json).unwrap();
            let read = parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(format!("{read:?}"), format!("{slow:?}"), "{text}");
            let meta = |message: ClientJsonRpcMessage| match message {
                ClientJsonRpcMessage::Request(request) => match request.request {
                    ClientRequest::CallToolRequest(call) => call.extensions.get::<RequestMetaObject>().cloned(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            };
            assert_eq!(meta(*read), meta(slow), "{text}");
        }
    }

    #[test]
    fn a_call_of_a_wrong_form_is_none() {
        for params in [r#"{}"#, r#"{"name":7}"#, r#"{"name":"a","arguments":[]}"#, r#"[]"#, "null"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
            let slow = serde_json::from_str::<ClientJsonRpcMessage>(&text).ok();
            let read = parse(text.as_bytes()).ok().flatten();
            assert_eq!(format!("{:?}", read.map(|read| *read)), format!("{slow:?}"), "{params}");
        }
        let old = br#"{"jsonrpc":"1.0","id":7,"method":"tools/call","params":{"name":"a"}}"#;
        assert!(parse(old).is_err());
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
