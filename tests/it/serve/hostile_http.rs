//! Over HTTP: whatever one client sends, it is told what is wrong, and another's effect ends well.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;

use oncegate_tests::harness::{Harness, TENANT};
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server, send};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, http, receipt, refunds, told, until_refunded};
use crate::agent::{refund, with_limits};

/// Time enough for a call on a busy machine.
const LIMITS: &str = "answer-within = \"60s\"";
/// kB of memory at the most: what is asleep takes a third of it.
const PEAK_KB_MAX: u64 = 450_000;

struct Served {
    harness: Harness,
    server: Server,
    token: String,
}

fn serve() -> Served {
    let harness = with_limits("refunds", LIMITS);
    let token = http::token(&harness, TENANT);
    let server = Server::start(&mut http::command(&harness)).unwrap();
    Served { harness, server, token }
}

impl Served {
    fn client(&self) -> Client {
        self.server.client(&self.token)
    }

    fn peak_kb(&self) -> u64 {
        super::peak_kb(self.server.pid())
    }

    /// One POST with headers of the test's own beside those that frame it.
    fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
        let mut head = format!("POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let request = [head.as_bytes(), b"\r\n", body].concat();
        let (status, body) = send(self.server.address(), &request).unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// What a good client sends.
    fn usual(&self) -> Vec<(&'static str, String)> {
        vec![
            ("Host", self.server.address().to_owned()),
            ("Authorization", format!("Bearer {}", self.token)),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", OLDER.to_owned()),
        ]
    }

    /// A refund as a good client asks for it, but for one header, which is replaced or added.
    fn but_for(&self, name: &'static str, value: &str) -> (u16, Value) {
        let mut headers = self.usual();
        headers.retain(|(usual, _)| *usual != name);
        headers.push((name, value.to_owned()));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(&headers, call("R-1").to_string().as_bytes())
    }

    /// A refund with one more of a header that it has.
    fn and_also(&self, name: &'static str, value: &str) -> u16 {
        let mut headers = self.usual();
        headers.push((name, value.to_owned()));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(&headers, call("R-1").to_string().as_bytes()).0
    }
}

fn call(return_id: &str) -> Value {
    let params = json!({ "name": TOOL, "arguments": refund(return_id, "broken") });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// Bodies that are no message, and the code of the error.
fn no_messages() -> Vec<(Vec<u8>, i64)> {
    let call = call("R-1").to_string();
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}", "[".repeat(1_000_000));
    let many = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[{{}}{}]}}",
        ",{\"a\":0}".repeat(900_000)
    );
    vec![
        (b"{".to_vec(), -32700),
        (call.as_bytes()[..call.len() - 1].to_vec(), -32700),
        (call.replace("broken", "\\ud800").into_bytes(), -32700),
        (call.replace("broken", "\u{0}").into_bytes(), -32700),
        ([call.replace("broken\"}}}", "").as_bytes(), b"\xff\"}}}"].concat(), -32700),
        (call.replace("\"R-1\"", "\"R-1\",\"return_id\":\"R-2\"").into_bytes(), -32700),
        (call.replace("\"id\":1", "\"id\":1,\"id\":2").into_bytes(), -32700),
        (deep.into_bytes(), -32700),
        (many.into_bytes(), -32700),
        (format!("{call}{call}").into_bytes(), -32700),
        (format!("[{call}]").into_bytes(), -32600),
        (call.replace("\"2.0\"", "\"1.0\"").into_bytes(), -32600),
        (call.replace("\"id\":1", "\"id\":null").into_bytes(), -32600),
        (call.replace("\"id\":1", "\"id\":1.5").into_bytes(), -32600),
        (call.replace("\"id\":1", "\"id\":{}").into_bytes(), -32600),
        (b"\"tools/call\"".to_vec(), -32600),
    ]
}

#[test]
fn an_effect_under_way_ends_well_whatever_another_client_sends() {
    let served = serve();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let client = served.client();
    let caller = thread::spawn(move || client.call(OLDER, TOOL, &refund("R-9", "broken")));
    until_refunded(&served.harness);

    let before = served.peak_kb();
    for (body, code) in no_messages() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let (status, text) = served.client().send(&served.client().bytes(&[], &body)).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{shown}: {answer:#}");
    }
    let client = served.client();
    let flood = || client.send(&client.bytes(&[], &vec![b'x'; 100_000_000])).unwrap().0;
    thread::scope(|scope| {
        let floods: Vec<_> = (0..3).map(|_| scope.spawn(flood)).collect();
        floods.into_iter().for_each(|flood| assert_eq!(flood.join().unwrap(), 413));
    });
    let cut = served.client();
    let call = cut.bytes(&[], call("R-1").to_string().as_bytes());
    drop(cut.leave_open(&call[..call.len() - 2]).unwrap());
    let peak = served.peak_kb();
    assert!(peak < PEAK_KB_MAX, "{before} kB before, {peak} kB now");

    let heard = receipt(&caller.join().unwrap().unwrap());
    assert_eq!(heard, served.harness.provider().effects().unwrap()[0].id);
    assert_eq!(refunds(&served.harness), 1);
    receipt(&served.client().call(NEWER, TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(refunds(&served.harness), 2);
}

#[test]
fn other_forms_than_the_protocols_are_refused_by_name() {
    let served = serve();
    assert_eq!(served.but_for("Content-Type", "text/plain").0, 415);
    assert_eq!(served.but_for("Accept", "text/html").0, 406);
    assert_eq!(served.but_for("MCP-Protocol-Version", "1999-01-01").0, 400);
    let (status, answer) = served.but_for("Mcp-Session-Id", "of-somebody-else");
    assert_eq!((status, &answer["error"]), (404, &json!("there is no such session; none is needed here")));
    assert_eq!(served.but_for("X-Long", &"x".repeat(200_000)).0, 431);
    let many: Vec<_> = (0..200).map(|n| (format!("X-{n}"), "x".to_owned())).collect();
    let mut client = served.client();
    client.headers.extend(many);
    assert_eq!(client.send(&client.bytes(&[], b"{}")).unwrap().0, 431);

    assert_eq!(served.and_also("Host", "rebound.example"), 400);
    assert_eq!(served.and_also("Authorization", "Bearer other"), 400);
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Accept: text/event-stream\r\nMCP-Protocol-Version: {OLDER}\r\n\r\n",
            served.server.address(),
            served.token
        );
        assert_eq!(send(served.server.address(), request.as_bytes()).unwrap().0, 405, "{method}");
    }
    assert_eq!(send(served.server.address(), b"\x16\x03\x01\x02\x00\r\n\r\n").unwrap().0, 400);
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string();
    let client = served.client();
    assert_eq!(client.send(&client.bytes(&[], answer.as_bytes())).unwrap().0, 400);
    assert_eq!(refunds(&served.harness), 0);
    assert_eq!(served.but_for("MCP-Protocol-Version", OLDER).0, 200);
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn headers_that_say_otherwise_than_the_body_are_refused() {
    let served = serve();
    let client = served.client();
    let request = client.request(NEWER, "tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") }));
    let request = String::from_utf8(request).unwrap();
    for (from, to) in [
        (format!("Mcp-Name: {TOOL}"), "Mcp-Name: effect_status".to_owned()),
        (format!("Mcp-Name: {TOOL}"), format!("Mcp-Name: {TOOL}\r\nMcp-Name: effect_status")),
        (format!("Mcp-Name: {TOOL}"), "X-No: name".to_owned()),
        ("Mcp-Method: tools/call".to_owned(), "Mcp-Method: tools/list".to_owned()),
        ("Mcp-Method: tools/call".to_owned(), "X-No: method".to_owned()),
        (format!("MCP-Protocol-Version: {NEWER}"), format!("MCP-Protocol-Version: {OLDER}")),
    ] {
        assert!(request.contains(&from), "{request}");
        let (status, body) = client.send(request.replace(&from, &to).as_bytes()).unwrap();
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)), "{to}: {answer:#}");
        assert_eq!(answer["id"], 1, "{answer:#}");
    }
    assert_eq!(refunds(&served.harness), 0);
    receipt(&client.call(NEWER, TOOL, &refund("R-1", "broken")).unwrap());
}

#[test]
fn two_requests_under_one_id_are_two_answers() {
    let served = serve();
    let receipts: Vec<_> = thread::scope(|scope| {
        let call = |id: &'static str| {
            let client = served.client();
            scope.spawn(move || receipt(&client.call(OLDER, TOOL, &refund(id, "broken")).unwrap()))
        };
        let calls: Vec<_> = ["R-1", "R-2", "R-1", "R-2"].map(call).into();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(receipts[0], receipts[2]);
    assert_eq!(receipts[1], receipts[3]);
    assert_ne!(receipts[0], receipts[1]);
    assert_eq!(refunds(&served.harness), 2);
}

#[test]
fn what_waits_for_one_tenant_is_not_told_to_another() {
    let harness = with_limits("refunds", "answer-within = \"1s\"");
    let policy = harness.home().join("policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    let both = text.replace("tenants = [\"acme\"]", "tenants = [\"acme\", \"other\"]");
    assert_ne!(text, both);
    fs::write(&policy, both).unwrap();
    let tokens = [http::token(&harness, "acme"), http::token(&harness, "other")];
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let [acme, other] = tokens.map(|token| server.client(&token));

    // The first one's guest runs on behind its answer; the same call of the other must not meet it.
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let pending = acme.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap();
    assert_eq!(told(&pending)["status"], "pending", "{pending:#}");
    let others = http::settled(&other);
    let own = http::settled(&acme);
    assert_ne!(receipt(&own), receipt(&others));
    // Each has its own, as its orchestrator asked.
    assert_eq!(refunds(&harness), 2);
    let question = json!({ "identifiers": ["R-1"] });
    for (client, receipt) in [(&acme, receipt(&own)), (&other, receipt(&others))] {
        let found = client.call(OLDER, "effect_status", &question).unwrap();
        let effects = found["structuredContent"]["effects"].as_array().unwrap();
        let receipts: Vec<_> = effects.iter().map(|effect| effect["receipt"].as_str().unwrap()).collect();
        assert_eq!(receipts, [receipt.as_str()], "{found:#}");
    }
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let served = serve();
    let client = served.client();
    let call = client.bytes(&[], call("R-2").to_string().as_bytes());
    let head = call.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let mut held = Vec::new();
    for said in [0, 10, head, call.len() - 1] {
        for _ in 0..50 {
            let mut stream = TcpStream::connect(served.server.address()).unwrap();
            stream.write_all(&call[..said]).unwrap();
            held.push(stream);
        }
    }
    receipt(&client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());
    drop(held);
    receipt(&client.call(OLDER, TOOL, &refund("R-3", "broken")).unwrap());
    assert_eq!(refunds(&served.harness), 2);
}
