//! A client's own idempotency key: it can stop a call, and never makes one effect of two or two of one.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use oncegate_tests::harness::{Guest, Harness, Options, TENANT};
use oncegate_tests::mcp::Stdio;
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server};
use serde_json::{Value, json};

use super::http::{command as over_http, token};
use super::{TOOL, is_replay, receipt, refunds, start, told};
use crate::agent::refund;
use crate::attacks::change_policy;

const META: &str = "dev.oncegate/idempotency-key";

fn with_key(arguments: &Value, key: &Value) -> Value {
    json!({ "name": TOOL, "arguments": arguments, "_meta": { META: key } })
}

fn call(client: &mut Stdio, key: &str, arguments: &Value) -> Value {
    client.ask("tools/call", &with_key(arguments, &json!(key))).unwrap()
}

#[track_caller]
fn is_stopped(result: &Value) {
    let told = told(result);
    assert_eq!(told["code"], "idempotency_key_reused", "{told:#}");
    assert!(told["message"].as_str().unwrap().contains("first used for another effect"), "{told:#}");
    assert_eq!(told["next_action"], "ask_person", "{told:#}");
}

#[track_caller]
fn is_sound(harness: &Harness) {
    let export = harness.run(&["ledger", "export"]).unwrap();
    assert_eq!(export.code, Some(0), "{export:?}");
    let file = harness.folder().join("export.ndjson");
    fs::write(&file, &export.stdout).unwrap();
    for words in [&["ledger", "verify"][..], &["ledger", "verify", "--export", file.to_str().unwrap()]] {
        let run = harness.run(words).unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
    }
}

#[test]
fn a_key_neither_repeats_nor_hides_an_effect() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let first = receipt(&call(&mut client, "k-1", &refund("R-1", "broken")));
    is_replay(&call(&mut client, "k-1", &refund("R-1", "in other words")), &first);
    is_replay(&call(&mut client, "k-2", &refund("R-1", "decided again")), &first);
    is_replay(&client.call(TOOL, &refund("R-1", "without a key")).unwrap(), &first);
    assert_eq!(refunds(&harness), 1);

    // Neither the first receipt nor a second effect is what was asked for.
    is_stopped(&call(&mut client, "k-1", &refund("R-2", "broken")));
    // A key that was only replayed with is used as well.
    is_stopped(&call(&mut client, "k-2", &refund("R-2", "broken")));
    assert_eq!(refunds(&harness), 1);
    drop(client);

    // Another process knows it, and what is done already is no exception.
    let mut client = start(&harness);
    receipt(&client.call(TOOL, &refund("R-2", "broken")).unwrap());
    is_stopped(&call(&mut client, "k-1", &refund("R-2", "broken")));
    is_replay(&call(&mut client, "k-1", &refund("R-1", "again")), &first);
    assert_eq!(refunds(&harness), 2);
    let export = harness.run(&["ledger", "export"]).unwrap();
    assert!(export.stdout.contains("client-key-used") && !export.stdout.contains("k-1"), "only a digest is kept");
    is_sound(&harness);
}

#[test]
fn other_values_of_the_same_effect_are_refused_with_or_without_a_key() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    receipt(&call(&mut client, "k-1", &refund("R-1", "broken")));
    let less = json!({ "return_id": "R-1", "amount": 1, "reason": "broken" });
    for key in ["k-1", "k-2"] {
        let result = call(&mut client, key, &less);
        assert_eq!(told(&result)["code"], "idempotency_key_reused", "{result:#}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn what_is_no_key_is_refused_and_nothing_is_sent() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    for wrong in
        [json!(""), json!("two words"), json!("x".repeat(256)), json!("k\u{7f}"), json!("é"), json!(7), json!({})]
    {
        let result = client.ask("tools/call", &with_key(&refund("R-1", "broken"), &wrong)).unwrap();
        assert_eq!(told(&result)["code"], "invalid_arguments", "{wrong}: {result:#}");
    }
    assert_eq!(refunds(&harness), 0);
    receipt(&call(&mut client, &"x".repeat(255), &refund("R-1", "broken")));
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn what_waits_for_a_person_uses_its_key() {
    let rule = "\n[[approve]]\noperation = \"create-refund\"\n".to_owned();
    let options = Options { policy: rule, ..Options::default() };
    let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
    let mut client = start(&harness);
    assert_eq!(told(&call(&mut client, "k-1", &refund("R-1", "broken")))["detail"], "awaiting_approval");
    is_stopped(&call(&mut client, "k-1", &refund("R-2", "broken")));
    assert_eq!(told(&call(&mut client, "k-1", &refund("R-1", "reworded")))["detail"], "awaiting_approval");
    assert_eq!(refunds(&harness), 0);
}

/// A client whose requests have this header too.
fn header(client: &Client, key: &str) -> Client {
    let mut client = client.clone();
    client.headers.push(("Idempotency-Key".to_owned(), key.to_owned()));
    client
}

#[test]
fn the_header_is_the_same_key_and_tenants_have_their_own() {
    let harness = Harness::new("refunds").unwrap();
    change_policy(&harness, "tenants = [\"acme\"]", "tenants = [\"acme\", \"second\"]");
    let server = Server::start(&mut over_http(&harness)).unwrap();
    let acme = server.client(&token(&harness, "acme"));
    let second = server.client(&token(&harness, "second"));
    let first = receipt(&header(&acme, "k-1").call(OLDER, TOOL, &refund("R-1", "broken")).unwrap());
    is_replay(&header(&acme, "\"k-1\"").call(NEWER, TOOL, &refund("R-1", "quoted")).unwrap(), &first);
    is_stopped(&header(&acme, "\"k-1\"").call(NEWER, TOOL, &refund("R-2", "broken")).unwrap());
    is_stopped(&acme.ask(OLDER, "tools/call", &with_key(&refund("R-2", "broken"), &json!("k-1"))).unwrap());
    let both = header(&acme, "k-2").ask(OLDER, "tools/call", &with_key(&refund("R-2", "broken"), &json!("k-3")));
    assert_eq!(told(&both.unwrap())["code"], "invalid_arguments");
    assert_eq!(refunds(&harness), 1);
    receipt(&header(&second, "k-1").call(OLDER, TOOL, &refund("R-2", "broken")).unwrap());
    assert_eq!(refunds(&harness), 2);
}

/// Two processes are given one key for two effects at one moment: one happens.
#[test]
fn one_key_at_once_is_one_effect() {
    let harness = Harness::new("refunds").unwrap();
    let mut clients = [start(&harness), start(&harness)];
    for round in 0..4 {
        let key = json!(format!("race-{round}"));
        let returns = [format!("R-{}", 2 * round + 1), format!("R-{}", 2 * round + 2)];
        let ids: Vec<i64> = clients
            .iter_mut()
            .zip(&returns)
            .map(|(client, id)| client.request("tools/call", &with_key(&refund(id, "race"), &key)).unwrap())
            .collect();
        let answers: Vec<Value> = clients
            .iter_mut()
            .zip(ids)
            .map(|(client, id)| client.answer(id, oncegate_tests::mcp::ANSWER_WITHIN).unwrap()["result"].take())
            .collect();
        let (done, stopped): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| told(answer)["status"] == "done");
        assert_eq!((done.len(), stopped.len()), (1, 1), "{answers:#?}");
        is_stopped(stopped[0]);
        assert_eq!(refunds(&harness), round + 1);
    }
    is_sound(&harness);
}

#[test]
fn after_the_replay_window_a_key_is_free_and_the_effect_is_not() {
    let options = Options { policy: "\n[retention]\nreplay-window = \"1s\"\n".to_owned(), ..Options::default() };
    let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
    let mut client = start(&harness);
    let first = receipt(&call(&mut client, "k-1", &refund("R-1", "broken")));
    thread::sleep(Duration::from_millis(1_200));
    receipt(&call(&mut client, "k-1", &refund("R-2", "broken")));
    let again = client.call(TOOL, &refund("R-1", "again")).unwrap();
    assert_eq!(receipt(&again), first);
    assert_eq!(refunds(&harness), 2);
    is_sound(&harness);
}

/// A tool of several effects: one key is for its whole call, also when the call goes on in another process.
#[test]
fn a_call_of_several_effects_has_one_key() {
    let harness = Harness::new("posts").unwrap();
    let served = |harness: &Harness| {
        let mut command: Command = harness.command();
        command.arg("serve").arg(harness.component()).args(["--context", &format!("tenant={TENANT}")]);
        Stdio::start(&mut command).unwrap()
    };
    let post = |client: &mut Stdio, trigger: &str, text: &str| {
        let meta = json!({ META: "k-1", "dev.oncegate/context": { "trigger": trigger } });
        let arguments = json!({ "board": "general", "text": text });
        let params = json!({ "name": "publish-post", "arguments": arguments, "_meta": meta });
        client.ask("tools/call", &params).unwrap()
    };
    let mut client = served(&harness);
    let first = receipt(&post(&mut client, "T-1", "hello"));
    drop(client);
    let mut client = served(&harness);
    is_replay(&post(&mut client, "T-1", "hello"), &first);
    is_stopped(&post(&mut client, "T-2", "hello"));
    is_sound(&harness);
}
