//! Over HTTP: who is let in, for whom, and that nothing is lost when a client or the server goes.

use std::fs;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server, send};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, is_replay, receipt, refunds, told, until_refunded, until_settled};
use crate::agent::refund;

/// `oncegate serve COMPONENT`, for whom the tokens say.
pub(super) fn command(harness: &Harness) -> Command {
    let mut command = harness.command();
    command.arg("serve").arg(harness.component());
    command
}

pub(super) fn token(harness: &Harness, tenant: &str) -> String {
    let run = harness.run(&["token", "add", "--tenant", tenant, "--name", tenant]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout.trim().to_owned()
}

struct Served {
    harness: Harness,
    server: Server,
    token: String,
}

fn serve() -> Served {
    let harness = Harness::new("refunds").unwrap();
    let token = token(&harness, "acme");
    let server = Server::start(&mut command(&harness)).unwrap();
    Served { harness, server, token }
}

impl Served {
    fn client(&self) -> Client {
        self.server.client(&self.token)
    }
}

pub(super) fn settled(client: &Client) -> Value {
    until_settled(|| client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap())
}

#[test]
fn both_revisions_on_one_endpoint() {
    let served = serve();
    let client = served.client();
    let hello = json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = client.ask(OLDER, "initialize", &hello).unwrap();
    assert_eq!(answer["protocolVersion"], OLDER);
    let found = client.ask(NEWER, "server/discover", &json!({})).unwrap();
    assert!(found["supportedVersions"].as_array().unwrap().contains(&json!(NEWER)), "{found:#}");
    for revision in [OLDER, NEWER] {
        let list = client.ask(revision, "tools/list", &json!({})).unwrap();
        assert_eq!(list["tools"][1]["name"], TOOL, "{list:#}");
    }
    let first = receipt(&client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());
    let again = client.call(NEWER, TOOL, &refund("R-1", "in pieces")).unwrap();
    is_replay(&again, &first);
    assert_eq!(again["resultType"], "complete");
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn nobody_is_let_in_without_a_token_of_this_server() {
    let served = serve();
    let refused = |client: &Client, status: u16| {
        let request = client.request(OLDER, "tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "x") }));
        let (heard, body) = client.send(&request).unwrap();
        assert_eq!(heard, status, "{body}");
        assert!(!body.contains("oncegate_"), "{body}");
    };
    refused(&served.server.client("oncegate_wrong"), 401);
    refused(&served.server.client(""), 401);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let raw = |target: &str, headers: &str| {
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            served.server.address(),
            body.len()
        );
        send(served.server.address(), request.as_bytes()).unwrap().0
    };
    let token = &served.token;
    assert_eq!(raw(&format!("/mcp?access_token={token}"), ""), 400);
    assert_eq!(raw(&format!("/mcp?token={token}"), &format!("Authorization: Bearer {token}\r\n")), 400);
    assert_eq!(raw("/mcp", &format!("Authorization: Basic {token}\r\n")), 401);
    assert_eq!(raw("/mcp", &format!("Authorization: Bearer {token}\r\n")), 200);
    assert_eq!(raw("/", &format!("Authorization: Bearer {token}\r\n")), 404);

    let run = served.harness.run(&["token", "revoke", "acme"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    refused(&served.client(), 401);
    assert_eq!(refunds(&served.harness), 0);
}

#[test]
fn a_web_page_or_another_name_is_refused() {
    let served = serve();
    let request = |host: &str, origin: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n{origin}\
             Accept: application/json, text/event-stream\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            served.token,
            body.len()
        );
        send(served.server.address(), request.as_bytes()).unwrap().0
    };
    let own = served.server.address();
    assert_eq!(request(own, ""), 200);
    assert_eq!(request(own, "Origin: https://evil.example\r\n"), 403);
    assert_eq!(request(own, "Origin: null\r\n"), 403);
    assert_eq!(request(own, "Origin: http://127.0.0.1:1\r\n"), 403);
    assert_eq!(request(own, &format!("Origin: http://{own}\r\n")), 200);
    assert_eq!(request("rebound.example", ""), 403);
}

#[test]
fn a_token_is_for_its_tenant_alone() {
    let served = serve();
    let other = served.server.client(&token(&served.harness, "other"));
    let first = receipt(&served.client().call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());

    // The policy lets nobody of that tenant use the component.
    let list = other.ask(OLDER, "tools/list", &json!({})).unwrap();
    assert_eq!(list["tools"].as_array().unwrap().len(), 1, "{list:#}");
    assert!(other.call(OLDER, TOOL, &refund("R-1", "broken")).is_err());
    let question = json!({ "identifiers": ["R-1"] });
    let found = other.call(OLDER, "effect_status", &question).unwrap();
    assert_eq!(found["structuredContent"]["effects"], json!([]), "{found:#}");
    let found = served.client().call(OLDER, "effect_status", &question).unwrap();
    assert_eq!(found["structuredContent"]["effects"][0]["receipt"], first.as_str(), "{found:#}");

    // Nor does saying so make it another's.
    let mut liar = other;
    liar.headers.push(("Oncegate-Context".to_owned(), "tenant=acme".to_owned()));
    let found = liar.call(OLDER, "effect_status", &question).unwrap();
    assert_eq!(told(&found)["code"], "effect_not_permitted");
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn facts_come_by_header_and_the_deadline_too() {
    let served = serve();
    let mut client = served.client();
    client.headers.push(("Oncegate-Context".to_owned(), "trigger=T%2D1, run=r".to_owned()));
    client.headers.push(("Oncegate-Answer-Within-Ms".to_owned(), "300".to_owned()));
    served.harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let started = Instant::now();
    let pending = client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap();
    assert_eq!(told(&pending)["status"], "pending", "{pending:#}");
    assert!(started.elapsed() < Duration::from_millis(2_500), "{:?}", started.elapsed());
    client.headers.push(("Oncegate-Context".to_owned(), "plan=P-1".to_owned()));
    let refused = client.call(OLDER, TOOL, &refund("R-2", "broken")).unwrap();
    assert_eq!(told(&refused)["code"], "effect_not_permitted");
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn what_is_no_message_or_too_large_is_refused() {
    let served = serve();
    let client = served.client();
    let post = |body: &[u8]| client.send(&client.bytes(&[], body)).unwrap();
    let mut deep = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":".to_vec();
    deep.extend(b"[".repeat(100_000));
    for body in [&b"{"[..], b"", b"\xff\xfe", b"[]", &deep] {
        let (status, body) = post(body);
        assert!((400..500).contains(&status), "{status} {body}");
    }
    assert_eq!(post(&vec![b'x'; 100_000_000]).0, 413);
    receipt(&client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());
}

#[test]
fn a_client_that_vanishes_loses_nothing() {
    let served = serve();
    let client = served.client();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let call = client.request(OLDER, "tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") }));
    let stream = client.leave_open(&call).unwrap();
    until_refunded(&served.harness);
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    let again = settled(&client);
    assert_eq!(receipt(&again), served.harness.provider().effects().unwrap()[0].id);
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn a_closed_stream_cancels_in_the_newer_revision_alone() {
    for (revision, made) in [(NEWER, 0), (OLDER, 1)] {
        let served = serve();
        let client = served.client();
        served.harness.provider().mode(Mode::Slow, "GET", "/returns/R-1", Some(1)).unwrap();
        let call = client.request(revision, "tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "x") }));
        let stream = client.leave_open(&call).unwrap();
        while served.harness.provider().log().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        drop(stream);
        thread::sleep(Duration::from_secs(6));
        assert_eq!(refunds(&served.harness), made, "{revision}");
    }
}

#[test]
fn at_sigterm_calls_are_answered_and_what_was_dispatched_is_stored() {
    let served = serve();
    let client = served.client();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let caller = thread::spawn(move || client.call(OLDER, TOOL, &refund("R-1", "broken")));
    until_refunded(&served.harness);
    let sent = Command::new("kill").args(["-TERM", &served.server.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    let heard = receipt(&caller.join().unwrap().unwrap());
    let run = served.server.wait(ANSWER_WITHIN).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let list = served.harness.run(&["ledger", "list", "--json"]).unwrap();
    let row: Value = serde_json::from_str(list.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&row["state"], &row["receipt"]), (&json!("done"), &json!(heard)), "{row:#}");
}

#[test]
fn who_gives_out_tokens_is_told_as_rfc_9728_says() {
    let harness = Harness::new("refunds").unwrap();
    let mut command = command(&harness);
    command.args(["--public-url", "https://tools.example/mcp", "--authorization-server", "https://login.example"]);
    let server = Server::start(&mut command).unwrap();
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address());
        send(server.address(), request.as_bytes()).unwrap()
    };
    let (status, body) = get("/.well-known/oauth-protected-resource/mcp");
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &document["resource"]), (200, &json!("https://tools.example/mcp")));
    assert_eq!(document["authorization_servers"], json!(["https://login.example"]));
    assert_eq!(get("/mcp").0, 401);
}

fn read_until(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "the stream ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&bytes[..count]);
    }
}

#[test]
fn who_listens_is_told_of_changes_and_of_the_end() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    let token = token(&harness, "acme");
    let server = Server::start(harness.command().arg("serve").arg(&folder)).unwrap();
    let client = server.client(&token);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = client.leave_open(&client.request(NEWER, "subscriptions/listen", &listen)).unwrap();
    read_until(&mut stream, "notifications/subscriptions/acknowledged");
    fs::copy(harness.component(), folder.join("refunds.wasm")).unwrap();
    read_until(&mut stream, "notifications/tools/list_changed");
    receipt(&client.call(NEWER, TOOL, &refund("R-1", "broken")).unwrap());
    let sent = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    read_until(&mut stream, "\"result\"");
    assert_eq!(server.wait(ANSWER_WITHIN).unwrap().code, Some(0));
}
