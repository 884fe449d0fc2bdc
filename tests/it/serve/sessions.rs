//! Sessions of the older revision: whose they are, how long they last, and that nothing is lost with one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness};
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::http::{command, token};
use super::{TOOL, is_replay, receipt, refunds, told, until_refunded, until_settled};
use crate::agent::refund;

/// What one token's tenant may have.
const SESSIONS_EACH_MAX: usize = 256;

/// What came back.
struct Answer {
    status: u16,
    session: Option<String>,
    /// The messages in it, whether it is one or a stream.
    messages: Vec<Value>,
}

/// One session's client.
#[derive(Clone)]
struct Session {
    client: Client,
    address: String,
    id: String,
}

fn send(address: &str, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let all = String::from_utf8(all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    let named = |line: &str| line.to_ascii_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned);
    let json = |line: &str| serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        session: head.lines().find_map(named),
        messages: body.lines().filter_map(json).filter(Value::is_object).collect(),
    }
}

fn begin(server: &Server, token: &str) -> Result<Session, u16> {
    let client = server.client(token);
    let hello = json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = send(server.address(), &client.request(OLDER, "initialize", &hello));
    let Some(id) = answer.session else { return Err(answer.status) };
    assert_eq!(answer.messages[0]["result"]["protocolVersion"], OLDER);
    let session = Session { client, address: server.address().to_owned(), id };
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(session.post(&ready).status, 202);
    Ok(session)
}

impl Session {
    /// The same session's name in the hands of another.
    fn of(&self, token: &str, server: &Server) -> Self {
        Self { client: server.client(token), ..self.clone() }
    }

    fn bytes(&self, message: &Value) -> Vec<u8> {
        let headers = [("MCP-Protocol-Version", OLDER), ("Mcp-Session-Id", self.id.as_str())];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.client.bytes(&headers, message.to_string().as_bytes())
    }

    fn post(&self, message: &Value) -> Answer {
        send(&self.address, &self.bytes(message))
    }

    fn ping(&self) -> u16 {
        self.post(&json!({ "jsonrpc": "2.0", "id": "ping", "method": "ping" })).status
    }

    fn call(&self, id: u64, arguments: &Value) -> Answer {
        self.post(&call(id, arguments))
    }

    fn verb(&self, verb: &str) -> Vec<u8> {
        let post = String::from_utf8(self.bytes(&json!({}))).unwrap();
        let head = post.replacen("POST", verb, 1).replace("Content-Length: 2", "Content-Length: 0");
        head.strip_suffix("{}").unwrap().into()
    }

    fn end(&self) -> u16 {
        send(&self.address, &self.verb("DELETE")).status
    }

    /// The stream that the server tells of changes in.
    fn listen(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream.write_all(&self.verb("GET")).unwrap();
        BufReader::new(stream)
    }
}

fn call(id: u64, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": TOOL, "arguments": arguments } })
}

/// The result of the call with that id.
#[track_caller]
fn result(answer: &Answer, id: u64) -> &Value {
    let found = answer.messages.iter().find(|message| message["id"] == id);
    let found = found.unwrap_or_else(|| panic!("{}: {:#?}", answer.status, answer.messages));
    &found["result"]
}

fn with_sessions(harness: &Harness) -> Command {
    let mut command = command(harness);
    command.arg("--sessions");
    command
}

struct Served {
    harness: Harness,
    server: Server,
    token: String,
}

fn serve(more: &[&str]) -> Served {
    let harness = Harness::new("refunds").unwrap();
    let token = token(&harness, "acme");
    let server = Server::start(with_sessions(&harness).args(more)).unwrap();
    Served { harness, server, token }
}

impl Served {
    fn begin(&self) -> Session {
        begin(&self.server, &self.token).unwrap()
    }
}

fn settled(session: &Session) -> Value {
    until_settled(|| result(&session.call(99, &refund("R-1", "what became of it?")), 99).clone())
}

#[test]
fn without_being_asked_there_are_no_sessions() {
    let harness = Harness::new("refunds").unwrap();
    let token = token(&harness, "acme");
    let server = Server::start(&mut command(&harness)).unwrap();
    assert_eq!(begin(&server, &token).err(), Some(200), "it is answered, and no session is made");
    for words in [&["--sessions"][..], &["--session-idle", "1m", "--http", "127.0.0.1:0"]] {
        let component = harness.component().to_str().unwrap().to_owned();
        let run = harness.run(&[&["serve", &component], words].concat()).unwrap();
        assert_eq!(run.code, Some(2), "{run:?}");
    }
}

#[test]
fn a_session_hears_of_changes_and_that_its_server_lives() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    fs::copy(harness.component(), folder.join("refunds.wasm")).unwrap();
    let token = token(&harness, "acme");
    let mut served = harness.command();
    served.arg("serve").arg(&folder).arg("--sessions");
    let server = Server::start(&mut served).unwrap();
    let session = begin(&server, &token).unwrap();
    let first = receipt(result(&session.call(1, &refund("R-1", "broken")), 1));
    let heard = session.listen();
    fs::copy(Guest::example("orders").unwrap().component, folder.join("orders.wasm")).unwrap();
    let (mut lives, mut changed) = (false, false);
    for line in heard.lines() {
        let line = line.unwrap();
        lives |= line.starts_with(':');
        changed |= line.contains("notifications/tools/list_changed");
        if lives && changed {
            break;
        }
    }
    assert!(lives && changed, "heartbeat {lives}, change {changed}");
    // Those who need no session go on without.
    is_replay(&server.client(&token).call(NEWER, TOOL, &refund("R-1", "again")).unwrap(), &first);
    assert_eq!(session.end(), 202);
    assert_eq!(session.ping(), 404);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_session_is_of_those_who_opened_it() {
    let served = serve(&[]);
    let session = served.begin();
    let stranger = session.of(&token(&served.harness, "other"), &served.server);
    assert_eq!(stranger.ping(), 404);
    assert_eq!(stranger.call(1, &refund("R-1", "mine")).status, 404);
    assert_eq!(stranger.end(), 404);
    let mut heard = String::new();
    stranger.listen().read_line(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 404"), "{heard}");
    assert_eq!(session.of("oncegate_wrong", &served.server).ping(), 401);
    let unknown = Session { id: "0b9e4d62-8f0c-4b5a-9c77-1d3f0a6f2f10".to_owned(), ..session.clone() };
    assert_eq!(unknown.ping(), 404);
    assert_eq!((session.ping(), refunds(&served.harness)), (200, 0));
}

#[test]
fn a_second_request_under_the_id_of_one_that_runs_is_refused() {
    let served = serve(&[]);
    let session = served.begin();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = {
        let session = session.clone();
        thread::spawn(move || session.call(7, &refund("R-1", "broken")))
    };
    until_refunded(&served.harness);
    let second = session.call(7, &refund("R-2", "under the same id"));
    assert_eq!(second.status, 409);
    let error = &second.messages[0];
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32600)), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("under way"), "{error}");
    assert_eq!(session.ping(), 200, "other ids are free");
    let first = first.join().unwrap();
    let settled = settled(&session);
    assert!(matches!(told(result(&first, 7))["status"].as_str(), Some("done" | "pending")), "{:#?}", first.messages);
    // The id is free again, and the refused call was not made.
    is_replay(result(&session.call(7, &refund("R-1", "again")), 7), &receipt(&settled));
    assert_eq!(refunds(&served.harness), 1);
}

/// What a cancelled call comes to would be told to whoever runs under its id.
#[test]
fn the_answer_of_a_cancelled_request_is_not_another_ones() {
    let served = serve(&[]);
    let session = served.begin();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = session.clone();
    // Nothing more may come in its stream.
    thread::spawn(move || first.call(7, &refund("R-1", "broken")));
    until_refunded(&served.harness);
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(session.post(&cancel).status, 202);
    let second = session.call(7, &refund("R-2", "under the same id"));
    assert_eq!(second.status, 409, "{:#?}", second.messages);
    assert!(second.messages[0]["error"]["message"].as_str().unwrap().contains("cancelled"), "{:#?}", second.messages);
    assert_eq!(refunds(&served.harness), 1);
    let receipt = receipt(&settled(&session));
    assert_eq!(served.harness.provider().effects().unwrap()[0].id, receipt);
}

#[test]
fn what_rests_ends_and_what_runs_does_not() {
    let served = serve(&["--session-idle", "1s"]);
    let session = served.begin();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    // Two seconds of silence, in which somebody waits.
    let answer = session.call(1, &refund("R-1", "broken"));
    assert!(matches!(told(result(&answer, 1))["status"].as_str(), Some("done" | "pending")), "{:#?}", answer.messages);
    let started = Instant::now();
    let mut pause = Duration::from_secs(3);
    while session.ping() != 404 {
        assert!(started.elapsed() < ANSWER_WITHIN, "the session does not end");
        thread::sleep(pause);
        pause += Duration::from_secs(1);
    }
    let first = receipt(&settled(&served.begin()));
    assert_eq!(first, served.harness.provider().effects().unwrap()[0].id);
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn a_tenant_has_so_many_sessions_and_leaves_room_for_others() {
    let served = serve(&[]);
    let sessions: Vec<Session> = (0..SESSIONS_EACH_MAX).map(|_| served.begin()).collect();
    assert_eq!(begin(&served.server, &served.token).err(), Some(503));
    assert!(begin(&served.server, &token(&served.harness, "other")).is_ok());
    assert_eq!(sessions[0].end(), 202);
    assert!(begin(&served.server, &served.token).is_ok());
    receipt(result(&sessions[1].call(1, &refund("R-1", "broken")), 1));
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn nothing_is_lost_with_a_session() {
    let served = serve(&[]);
    let session = served.begin();
    served.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut stream = TcpStream::connect(served.server.address()).unwrap();
    stream.write_all(&session.bytes(&call(1, &refund("R-1", "broken")))).unwrap();
    until_refunded(&served.harness);
    assert_eq!(session.end(), 202);
    drop(stream);
    let settled = settled(&served.begin());
    assert_eq!(receipt(&settled), served.harness.provider().effects().unwrap()[0].id);
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn the_server_ends_under_sessions_that_listen() {
    let served = serve(&[]);
    let session = served.begin();
    let mut heard = session.listen();
    let mut line = String::new();
    heard.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    receipt(result(&session.call(1, &refund("R-1", "broken")), 1));
    let status = Command::new("kill").arg(served.server.pid().to_string()).status().unwrap();
    assert!(status.success());
    let run = served.server.wait(ANSWER_WITHIN).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(refunds(&served.harness), 1);
}
