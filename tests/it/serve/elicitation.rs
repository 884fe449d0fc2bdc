//! Approvals by the person at a client of the older revision: asked during the call, and counted only
//! where the policy takes this client's word.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_ledger::Event;
use oncegate_tests::harness::{Guest, Harness, Options};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use serde_json::{Value, json};

use super::{TOOL, command, is_replay, receipt, refunds, told};
use crate::agent::refund;
use crate::book;
use crate::verbs::row;

/// What a client's person is asked by.
pub(super) const ASK: &str = "elicitation/create";
/// Every refund waits for a person, and this client's word is taken.
const STDIO: &str = "elicitation-from = [\"stdio\"]";

/// Every refund waits for a person, as the rest of the rule says.
pub(super) fn asking(rule: &str, limits: &str) -> Harness {
    let policy = format!("\n[[approve]]\noperation = \"create-refund\"\n{rule}\n");
    let options = Options { policy, limits: limits.to_owned(), ..Options::default() };
    Harness::with(Guest::example("refunds").unwrap(), options).unwrap()
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn client(harness: &Harness) -> Stdio {
    Stdio::able(&mut command(harness), &forms()).unwrap()
}

/// Calls, and reads what the person is asked.
fn asked(client: &mut Stdio, reason: &str) -> (i64, Value) {
    let call = json!({ "name": TOOL, "arguments": refund("R-1", reason) });
    let id = client.request("tools/call", &call).unwrap();
    (id, client.asked(ASK, ANSWER_WITHIN).unwrap())
}

fn result(client: &mut Stdio, id: i64) -> Value {
    client.answer(id, ANSWER_WITHIN).unwrap()["result"].take()
}

pub(super) fn says(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

#[track_caller]
pub(super) fn waits(result: &Value) {
    let told = told(result);
    assert_eq!((&told["status"], &told["detail"]), (&json!("pending"), &json!("awaiting_approval")), "{told:#}");
    assert_eq!(told["next_action"], "ask_person", "{told:#}");
}

#[track_caller]
pub(super) fn is_revoked(result: &Value) {
    let told = told(result);
    assert_eq!((&told["status"], &told["code"]), (&json!("refused"), &json!("revoked")), "{told:#}");
}

/// Who approved and who denied, as the ledger has it.
pub(super) fn decisions(harness: &Harness) -> Vec<(&'static str, String)> {
    let records = book::records(harness).into_iter();
    records
        .filter_map(|record| match record.event {
            Event::Approved { actor, .. } => Some(("approved", actor)),
            Event::Denied { actor, .. } => Some(("denied", actor)),
            _ => None,
        })
        .collect()
}

/// `ledger approve`, by somebody at the host.
pub(super) fn approve_here(harness: &Harness, actor: &str) -> Option<i32> {
    let version = row(harness, "refund R-1")["version"].to_string();
    let words = ["ledger", "approve", "refund R-1", "--reason", "looked at", "--expect-version", &version];
    harness.run(&[&words[..], &["--actor", actor]].concat()).unwrap().code
}

#[test]
fn what_the_person_was_shown_and_approved_is_what_is_sent() {
    let harness = asking(STDIO, "");
    let mut client = client(&harness);
    let (id, question) = asked(&mut client, "please approve **this** <b>now</b>\n\nApproved: yes");
    assert_eq!(refunds(&harness), 0);
    let params = &question["params"];
    assert_eq!(params["mode"], "form", "{question:#}");
    let schema = &params["requestedSchema"];
    assert_eq!(schema["properties"]["decision"]["enum"], json!(["deny", "approve"]), "{schema:#}");
    assert_eq!(schema["required"], json!(["decision"]), "{schema:#}");
    assert_eq!(schema["properties"].as_object().unwrap().len(), 1, "{schema:#}");
    assert!(!schema.to_string().contains("default"), "{schema:#}");
    let text = params["message"].as_str().unwrap();
    let ours = ["refund R-1", "tenant acme", "request sha256:", "no other epoch of it", "Untrusted text"];
    assert!(ours.iter().all(|part| text.contains(part)), "{text}");
    // What a model wrote stands in lines that are shown as they are.
    let wrote: Vec<&str> = text.lines().filter(|line| line.contains("**this**") || line.contains("Approved")).collect();
    assert!(!wrote.is_empty() && wrote.iter().all(|line| line.starts_with("    ")), "{text}");

    client.reply(&question, &says("approve")).unwrap();
    let done = result(&mut client, id);
    assert_eq!(told(&done)["status"], "done", "{done:#}");
    assert_eq!(refunds(&harness), 1);
    let log = harness.provider().log().unwrap();
    let sent = log.iter().find(|one| one.path == "/v1/refunds" && one.method == "POST").unwrap();
    let shown = text.lines().filter_map(|line| line.trim_start().strip_prefix("| "));
    assert_eq!(shown.collect::<Vec<_>>(), sent.body.lines().collect::<Vec<_>>(), "{text}");
    let [(what, actor)] = &decisions(&harness)[..] else { panic!("{:?}", decisions(&harness)) };
    assert_eq!((*what, actor.as_str()), ("approved", "elicitation:stdio tenant acme client \"oncegate-tests\""));
    is_replay(&client.call(TOOL, &refund("R-1", "again")).unwrap(), &receipt(&done));
    assert!(client.heard.iter().all(|message| message["method"] != ASK), "{:?}", client.heard);
}

#[test]
fn a_no_is_for_ever() {
    for no in [json!({ "action": "decline" }), says("deny")] {
        let harness = asking(STDIO, "");
        let mut client = client(&harness);
        let (id, question) = asked(&mut client, "broken");
        client.reply(&question, &no).unwrap();
        is_revoked(&result(&mut client, id));
        is_revoked(&client.call(TOOL, &refund("R-1", "please")).unwrap());
        assert!(client.heard.iter().all(|message| message["method"] != ASK), "{:?}", client.heard);
        assert_eq!(approve_here(&harness, "ada"), Some(3));
        assert_eq!((decisions(&harness).len(), refunds(&harness)), (1, 0), "{no}");
    }
}

#[test]
fn what_is_no_answer_decides_nothing_and_nobody_is_asked_again_at_once() {
    for none in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "decision": "yes" } }),
        json!({ "action": "cancel", "content": { "decision": "approve" } }),
        json!({ "strange": true }),
    ] {
        let harness = asking(STDIO, "");
        let mut client = client(&harness);
        let (id, question) = asked(&mut client, "broken");
        client.reply(&question, &none).unwrap();
        waits(&result(&mut client, id));
        waits(&client.call(TOOL, &refund("R-1", "an agent that does not give up")).unwrap());
        assert!(client.heard.iter().all(|message| message["method"] != ASK), "{:?}", client.heard);
        assert_eq!((decisions(&harness).len(), refunds(&harness)), (0, 0), "{none}");
        assert_eq!(approve_here(&harness, "ada"), Some(0));
        assert_eq!(told(&client.call(TOOL, &refund("R-1", "now?")).unwrap())["status"], "done");
        assert_eq!(refunds(&harness), 1);
    }
}

#[test]
fn who_does_not_answer_in_time_has_not_answered() {
    let harness = asking(STDIO, "elicitation-within = \"500ms\"");
    let mut client = client(&harness);
    let (id, question) = asked(&mut client, "broken");
    waits(&result(&mut client, id));
    let cancelled = client.asked("notifications/cancelled", ANSWER_WITHIN).unwrap();
    assert_eq!(cancelled["params"]["requestId"], question["id"], "{cancelled:#}");
    client.reply(&question, &says("approve")).unwrap();
    client.ask("ping", &json!({})).unwrap();
    assert_eq!((decisions(&harness).len(), refunds(&harness)), (0, 0));
    waits(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(approve_here(&harness, "ada"), Some(0));
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_client_that_vanishes_while_it_is_asked_loses_nothing() {
    for killed in [false, true] {
        let harness = asking(STDIO, "");
        let mut first = client(&harness);
        asked(&mut first, "broken");
        if killed {
            assert!(first.kill().unwrap().was_killed());
        } else {
            let run = first.close(ANSWER_WITHIN).unwrap();
            assert_eq!(run.code, Some(0), "{run:?}");
        }
        assert_eq!((decisions(&harness).len(), refunds(&harness)), (0, 0));
        assert_eq!(row(&harness, "refund R-1")["state"], "awaiting-approval");
        let mut second = client(&harness);
        let (id, question) = asked(&mut second, "in pieces");
        // The request that waits is still the first one.
        assert!(question["params"]["message"].as_str().unwrap().contains("broken"), "{question:#}");
        second.reply(&question, &says("approve")).unwrap();
        receipt(&result(&mut second, id));
        assert_eq!(refunds(&harness), 1);
    }
}

#[test]
fn nobody_is_asked_whose_client_does_not_wait_until_they_have_read() {
    let harness = asking(STDIO, "");
    let mut client = client(&harness);
    let meta = json!({ "dev.oncegate/answer-within-ms": 5_000 });
    let call = json!({ "name": TOOL, "arguments": refund("R-1", "broken"), "_meta": meta });
    waits(&client.ask("tools/call", &call).unwrap());
    assert!(client.heard.iter().all(|message| message["method"] != ASK), "{:?}", client.heard);
}

#[test]
fn a_cancelled_call_asks_no_longer() {
    let harness = asking(STDIO, "");
    let mut client = client(&harness);
    let (id, question) = asked(&mut client, "broken");
    client.notify("notifications/cancelled", &json!({ "requestId": id })).unwrap();
    let cancelled = client.asked("notifications/cancelled", ANSWER_WITHIN).unwrap();
    assert_eq!(cancelled["params"]["requestId"], question["id"], "{cancelled:#}");
    client.reply(&question, &says("approve")).unwrap();
    client.ask("ping", &json!({})).unwrap();
    assert_eq!((decisions(&harness).len(), refunds(&harness)), (0, 0));
    // It was not the person who put it away.
    let (id, question) = asked(&mut client, "broken");
    client.reply(&question, &says("approve")).unwrap();
    receipt(&result(&mut client, id));
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn nobody_is_asked_where_the_policy_takes_no_such_word() {
    let by = "by = [\"alice\"]";
    let both = format!("{STDIO}\n[[approve]]\noperation = \"create-refund\"\n{by}");
    for rule in ["", by, "elicitation-from = [\"token:desk\"]", &both] {
        let harness = asking(rule, "");
        let mut client = client(&harness);
        waits(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
        assert!(client.heard.iter().all(|message| message["method"] != ASK), "{rule}: {:?}", client.heard);
        assert_eq!((decisions(&harness).len(), refunds(&harness)), (0, 0), "{rule}");
        // Those whom the rule means are the way.
        assert_eq!(approve_here(&harness, "alice"), Some(0));
        receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
        assert_eq!(refunds(&harness), 1, "{rule}");
    }
}

#[test]
fn nobody_is_asked_whose_client_cannot() {
    for able in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let harness = asking(STDIO, "");
        let mut client = Stdio::able(&mut command(&harness), &able).unwrap();
        waits(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
        assert!(client.heard.iter().all(|message| message["method"] != ASK), "{able}: {:?}", client.heard);
        assert_eq!(refunds(&harness), 0);
    }
    // Before there were modes, an empty capability meant forms.
    let harness = asking(STDIO, "");
    let mut client = Stdio::able(&mut command(&harness), &json!({ "elicitation": {} })).unwrap();
    let (id, question) = asked(&mut client, "broken");
    client.reply(&question, &says("approve")).unwrap();
    receipt(&result(&mut client, id));
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn two_who_approve_at_once_are_one_effect() {
    let harness = asking(STDIO, "");
    let mut clients = [client(&harness), client(&harness)];
    let asked: Vec<_> = clients.iter_mut().map(|client| asked(client, "both were asked")).collect();
    for (client, (_, question)) in clients.iter_mut().zip(&asked) {
        client.reply(question, &says("approve")).unwrap();
    }
    let receipts: Vec<_> = clients.iter_mut().zip(&asked).map(|(client, (id, _))| settled(client, *id)).collect();
    assert_eq!(receipts[0], receipts[1]);
    assert_eq!(refunds(&harness), 1);
}

/// The receipt of a call; one that met another at work is asked for again.
fn settled(client: &mut Stdio, id: i64) -> String {
    let started = Instant::now();
    let mut result = result(client, id);
    while told(&result)["status"] == "pending" {
        assert!(started.elapsed() < ANSWER_WITHIN, "{result:#}");
        assert_eq!(told(&result)["detail"], "in_progress", "{result:#}");
        thread::sleep(Duration::from_millis(200));
        result = client.call(TOOL, &refund("R-1", "both were asked")).unwrap();
    }
    receipt(&result)
}

#[test]
fn one_question_for_each_effect_and_none_that_cannot_be_shown_whole() {
    let rule = format!("\n[[approve]]\noperation = \"send-email\"\n{STDIO}\n");
    let options = Options { policy: rule, ..Options::default() };
    let harness = Harness::with(Guest::example("campaign").unwrap(), options).unwrap();
    let mut client = client(&harness);
    let send = |body: &str, trigger: &str| {
        json!({
            "name": "send-campaign",
            "arguments": { "subject": "News", "body": body, "recipients": ["a@example.com", "b@example.com", "c@example.com"] },
            "_meta": { "dev.oncegate/context": { "trigger": trigger } },
        })
    };
    let id = client.request("tools/call", &send("Dear reader", "spring")).unwrap();
    for decision in ["approve", "approve", "deny"] {
        let question = client.asked(ASK, ANSWER_WITHIN).unwrap();
        client.reply(&question, &says(decision)).unwrap();
    }
    result(&mut client, id);
    assert_eq!(harness.provider().count("email").unwrap(), 2);
    let to: Vec<Value> = harness.provider().effects().unwrap().iter().map(|one| one.object["to"].clone()).collect();
    assert_eq!(to, [json!("a@example.com"), json!("b@example.com")]);

    let long = client.ask("tools/call", &send(&"all of it ".repeat(1_000), "autumn")).unwrap();
    waits(&long);
    assert!(client.heard.iter().all(|message| message["method"] != ASK), "{:?}", client.heard);
    assert_eq!(harness.provider().count("email").unwrap(), 2);
}
