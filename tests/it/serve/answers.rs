//! Results that are too large: what happened is told whole, and the provider's answer is for those who may
//! read it.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use oncegate_tests::harness::{Guest, Harness, Options, SECRET};
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::http::{command, token};
use super::{TOOL, refunds};
use crate::agent::refund;
use crate::attacks::change_policy;
use crate::raw_answers::{Scene, Then, answer};
use crate::verbs::row;

/// No result of the tool is as small.
const SMALL: &str = "result = \"16B\"";
const READABLE: &str = "read-answers = true\ngrant = [";

fn small() -> Harness {
    let options = Options { limits: SMALL.to_owned(), ..Options::default() };
    Harness::with(Guest::example("refunds").unwrap(), options).unwrap()
}

fn readable() -> Harness {
    let harness = small();
    change_policy(&harness, "tenants = [\"acme\"]", "tenants = [\"acme\", \"second\"]");
    change_policy(&harness, "grant = [", READABLE);
    harness
}

/// What is said of a call whose result was left out, and its receipt.
#[track_caller]
fn left_out(result: &Value, status: &str) -> String {
    let told = &result["structuredContent"];
    assert_eq!((&told["status"], &told["truncated_by_host"]), (&json!(status), &json!(true)), "{result:#}");
    assert_eq!((&told["result"], &result["isError"]), (&Value::Null, &json!(false)), "{result:#}");
    assert!(told["message"].as_str().unwrap().contains("left it out"), "{result:#}");
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, *told);
    told["effects"][0]["receipt"].as_str().unwrap().to_owned()
}

#[track_caller]
fn link(result: &Value) -> String {
    let content = result["content"].as_array().unwrap();
    assert_eq!((content.len(), &content[1]["type"]), (2, &json!("resource_link")), "{result:#}");
    content[1]["uri"].as_str().unwrap().to_owned()
}

fn read(client: &Client, uri: &str) -> Result<Value, anyhow::Error> {
    client.ask(OLDER, "resources/read", &json!({ "uri": uri })).map(|mut result| result["contents"][0].take())
}

#[track_caller]
fn is_unknown(client: &Client, uri: &str) {
    let error = read(client, uri).unwrap_err().to_string();
    assert!(error.contains("there is no such answer for you"), "{error}");
}

fn capabilities(client: &Client) -> Value {
    let hello = json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    client.ask(OLDER, "initialize", &hello).unwrap()["capabilities"].take()
}

#[test]
fn what_happened_is_told_whole_and_nothing_is_linked_unless_policy_says_so() {
    let harness = small();
    let server = Server::start(&mut command(&harness)).unwrap();
    let client = server.client(&token(&harness, "acme"));
    let first = client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap();
    let receipt = left_out(&first, "done");
    assert_eq!(receipt, harness.provider().effects().unwrap()[0].id);
    assert_eq!(first["content"].as_array().unwrap().len(), 1, "{first:#}");
    assert!(first["structuredContent"]["message"].as_str().unwrap().contains("oncegate ledger show"), "{first:#}");
    let again = client.call(NEWER, TOOL, &refund("R-1", "again")).unwrap();
    assert_eq!(left_out(&again, "already_done"), receipt);
    assert_eq!(capabilities(&client).get("resources"), None);
    is_unknown(&client, &format!("oncegate://receipt/{}", "A".repeat(64)));
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn the_whole_answer_is_for_callers_of_its_tenant() {
    let harness = readable();
    let server = Server::start(&mut command(&harness)).unwrap();
    let own = token(&harness, "acme");
    let (acme, second) = (server.client(&own), server.client(&token(&harness, "second")));
    assert!(capabilities(&acme)["resources"].is_object());
    let first = acme.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap();
    let receipt = left_out(&first, "done");
    let uri = link(&first);
    assert_eq!(link(&acme.call(NEWER, TOOL, &refund("R-1", "again")).unwrap()), uri);

    let whole = read(&acme, &uri).unwrap();
    let object: Value = serde_json::from_str(whole["text"].as_str().unwrap()).unwrap();
    assert_eq!(object["id"], receipt.as_str(), "{whole:#}");
    assert_eq!(object["object"], "refund", "{whole:#}");
    assert_eq!(whole["_meta"]["dev.oncegate/size"], whole["text"].as_str().unwrap().len(), "{whole:#}");
    assert_eq!(acme.ask(NEWER, "resources/read", &json!({ "uri": uri, "name": uri })).unwrap()["contents"][0], whole);

    // Neither another tenant nor a guess opens it, and it does not say which effect it is.
    is_unknown(&second, &uri);
    let mut liar = second.clone();
    liar.headers.push(("Oncegate-Context".to_owned(), "tenant=acme".to_owned()));
    assert!(read(&liar, &uri).is_err());
    let name = uri.strip_prefix("oncegate://receipt/").unwrap();
    let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(name).unwrap();
    bytes[40] ^= 1;
    is_unknown(&acme, &format!("oncegate://receipt/{}", BASE64_URL_SAFE_NO_PAD.encode(&bytes)));
    let key = row(&harness, "refund R-1")["key"].as_str().unwrap().to_owned();
    let shown: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!shown.contains(&key[..16]) && !uri.contains(&key[..16]), "{uri} shows {key}");
    for wrong in ["file:///etc/passwd", "oncegate://receipt/", "oncegate://effect/x"] {
        is_unknown(&acme, wrong);
    }
    drop(server);

    let server = Server::start(&mut command(&harness)).unwrap();
    assert_eq!(read(&server.client(&own), &uri).unwrap(), whole, "after a restart");
    drop(server);
    change_policy(&harness, READABLE, "grant = [");
    let server = Server::start(&mut command(&harness)).unwrap();
    is_unknown(&server.client(&own), &uri);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_large_answer_is_read_in_pages() {
    let harness = readable();
    harness.provider().mode(Mode::Big20Mb, "POST", "/v1/refunds", Some(1)).unwrap();
    let server = Server::start(&mut command(&harness)).unwrap();
    let client = server.client(&token(&harness, "acme"));
    let started = std::time::Instant::now();
    let mut result = client.call(OLDER, TOOL, &refund("R-1", "large")).unwrap();
    while result["structuredContent"]["status"] == "pending" {
        assert!(started.elapsed() < oncegate_tests::mcp::ANSWER_WITHIN, "{result:#}");
        std::thread::sleep(std::time::Duration::from_millis(500));
        result = client.call(OLDER, TOOL, &refund("R-1", "large")).unwrap();
    }
    let uri = link(&result);
    let first = read(&client, &uri).unwrap();
    let size = first["_meta"]["dev.oncegate/size"].as_u64().unwrap();
    assert!(size > 20_000_000, "{size}");
    let page = first["text"].as_str().unwrap().len();
    assert_eq!(page, 256 << 10);
    let next = first["_meta"]["dev.oncegate/next"].as_str().unwrap();
    assert_eq!(next, format!("{uri}?from={page}"));
    assert_eq!(read(&client, next).unwrap()["text"].as_str().unwrap().len(), page);
    let last = read(&client, &format!("{uri}?from={}", size - 10)).unwrap();
    assert_eq!(last["text"].as_str().unwrap().len(), 10);
    assert!(last["_meta"].get("dev.oncegate/next").is_none(), "{last:#}");
    assert!(read(&client, &format!("{uri}?from={}", size + 1)).is_err());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn an_echoed_secret_is_in_no_page() {
    let echo = |body: &[u8]| {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        object["note"] = json!(format!("you sent Bearer {SECRET}"));
        answer("200 OK", object.to_string().as_bytes())
    };
    let scene = Scene::with(echo, Then::Close, SMALL);
    change_policy(&scene.harness, "grant = [", READABLE);
    let server = Server::start(&mut command(&scene.harness)).unwrap();
    let own = token(&scene.harness, "acme");
    let client = server.client(&own);
    let uri = link(&client.call(OLDER, TOOL, &refund("R-1001", "broken")).unwrap());
    let whole = read(&client, &uri).unwrap();
    let text = whole["text"].as_str().unwrap();
    assert!(text.contains("you sent") && !text.contains(SECRET), "{text}");
    drop(server);
    // With another secret in force nobody can tell any more what to take out.
    let mut later = command(&scene.harness);
    later.env("PAY_KEY", "another");
    let server = Server::start(&mut later).unwrap();
    let error = read(&server.client(&own), &uri).unwrap_err().to_string();
    assert!(error.contains("withheld") && !error.contains(SECRET), "{error}");
    assert_eq!(scene.count(), 1);
}
