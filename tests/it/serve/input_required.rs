//! Approvals by the person at a client of the newer revision: the call is answered with the question, and
//! its repeat brings the answer beside a sealed state.

use std::thread;
use std::time::Duration;

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::http::{Client, NEWER, OLDER, Server};
use oncegate_tests::mcp::sdk::Sdk;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::elicitation::{approve_here, asking, decisions, is_revoked, says, waits};
use super::{TOOL, command, http, is_replay, receipt, refunds, told};
use crate::agent::refund;
use crate::attacks::change_policy;

const DESK: &str = "elicitation-from = [\"token:desk\"]";

struct Served {
    harness: Harness,
    server: Server,
    desk: String,
}

fn token(harness: &Harness, tenant: &str, name: &str) -> String {
    let run = harness.run(&["token", "add", "--tenant", tenant, "--name", name]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout.trim().to_owned()
}

fn serve(harness: Harness) -> Served {
    let desk = token(&harness, "acme", "desk");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    Served { harness, server, desk }
}

impl Served {
    fn client(&self) -> Client {
        self.with(&self.desk)
    }

    fn with(&self, token: &str) -> Client {
        able(&self.server, token, json!({ "elicitation": { "form": {} } }))
    }
}

fn able(server: &Server, token: &str, capabilities: Value) -> Client {
    let mut client = server.client(token);
    client.capabilities = capabilities;
    client
}

/// The state of a call that was answered with the question.
#[track_caller]
fn state(result: &Value) -> String {
    assert_eq!(result["resultType"], "input_required", "{result:#}");
    let question = &result["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create", "{result:#}");
    let text = question["params"]["message"].as_str().unwrap();
    assert!(text.contains("request sha256:") && text.contains("| "), "{text}");
    result["requestState"].as_str().unwrap().to_owned()
}

fn ask(client: &Client, arguments: &Value) -> String {
    state(&client.call(NEWER, TOOL, arguments).unwrap())
}

fn retry(client: &Client, arguments: &Value, state: &str, answer: &Value) -> Value {
    let params = json!({
        "name": TOOL, "arguments": arguments, "requestState": state, "inputResponses": { "approval": answer },
    });
    client.ask(NEWER, "tools/call", &params).unwrap()
}

/// A state from which nothing was taken.
#[track_caller]
fn is_refused(result: &Value, why: &str) {
    let told = told(result);
    assert_eq!((&told["status"], &told["code"]), (&json!("refused"), &json!("invalid_arguments")), "{told:#}");
    assert_eq!(told["next_action"], "call_again", "{told:#}");
    assert!(told["message"].as_str().unwrap().contains(why), "{why}: {told:#}");
}

#[test]
fn an_approval_is_taken_once_however_often_it_is_sent() {
    let served = serve(asking(DESK, ""));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    let first = ask(&client, &arguments);
    assert_eq!(refunds(&served.harness), 0);
    let done = retry(&client, &arguments, &first, &says("approve"));
    assert_eq!(told(&done)["status"], "done", "{done:#}");
    // A client that lost the answer sends the same again, and hears the first receipt: nothing is approved by it.
    for decision in ["approve", "deny"] {
        is_replay(&retry(&client, &arguments, &first, &says(decision)), &receipt(&done));
    }
    let [(what, actor)] = &decisions(&served.harness)[..] else { panic!("{:?}", decisions(&served.harness)) };
    assert_eq!(*what, "approved");
    assert!(actor.starts_with("elicitation:token:desk tenant acme client "), "{actor}");
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn a_no_is_for_ever_and_a_question_that_was_put_away_decides_nothing() {
    let served = serve(asking(DESK, ""));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    let first = ask(&client, &arguments);
    waits(&retry(&client, &arguments, &first, &json!({ "action": "cancel" })));
    // Nobody is asked again at once.
    waits(&client.call(NEWER, TOOL, &arguments).unwrap());
    assert_eq!(decisions(&served.harness).len(), 0);
    is_revoked(&retry(&client, &arguments, &first, &json!({ "action": "decline" })));
    is_revoked(&retry(&client, &arguments, &first, &says("approve")));
    is_revoked(&client.call(NEWER, TOOL, &arguments).unwrap());
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (1, 0));
    assert_eq!(approve_here(&served.harness, "ada"), Some(3));
}

#[test]
fn a_state_that_was_used_or_overtaken_approves_nothing_more() {
    let served = serve(asking(DESK, ""));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    served.harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = ask(&client, &arguments);
    assert_eq!(told(&retry(&client, &arguments, &first, &says("approve")))["status"], "failed");
    // The provider refused; what is sent next is another request, and was approved by nobody.
    is_refused(&retry(&client, &arguments, &first, &says("approve")), "used before");
    let second = ask(&client, &arguments);
    is_refused(&retry(&client, &arguments, &first, &says("approve")), "used before");
    // Other values wait in its place.
    let other = json!({ "return_id": "R-1", "amount": 300, "reason": "less" });
    ask(&client, &other);
    is_refused(&retry(&client, &arguments, &second, &says("approve")), "has changed since");
    // And the first ones again: the same request, byte for byte, at another version of the row.
    ask(&client, &arguments);
    is_refused(&retry(&client, &arguments, &second, &says("approve")), "has changed since");
    let third = ask(&client, &other);
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (1, 0));
    let done = retry(&client, &other, &third, &says("approve"));
    assert_eq!(told(&done)["status"], "done", "{done:#}");
    let made = served.harness.provider().effects().unwrap();
    assert_eq!((made.len(), &made[0].object["amount"]), (1, &json!(300)));
}

#[test]
fn a_state_is_for_one_call_of_one_caller() {
    let harness = asking("elicitation-from = [\"token:desk\", \"token:other\", \"token:foreign\"]", "");
    change_policy(&harness, "tenants = [\"acme\"]", "tenants = [\"acme\", \"globex\"]");
    let served = serve(harness);
    let other = served.with(&token(&served.harness, "acme", "other"));
    let foreign = served.with(&token(&served.harness, "globex", "foreign"));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    let state = ask(&client, &arguments);
    let yes = says("approve");
    for (client, arguments) in [
        (&client, refund("R-2", "broken")),
        (&client, refund("R-1", "other words")),
        (&client, json!({ "return_id": "R-1", "amount": 1, "reason": "broken" })),
        (&other, arguments.clone()),
        (&foreign, arguments.clone()),
    ] {
        is_refused(&retry(client, &arguments, &state, &yes), "another");
    }
    let flipped = |at: usize| {
        let mut bytes = state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    for forged in [flipped(0), flipped(state.len() / 2), flipped(state.len() - 5), String::new(), "e30".to_owned()] {
        is_refused(&retry(&client, &arguments, &forged, &yes), "not given out here");
    }
    // An answer that belongs to no question, as a model would write it; and in the arguments it is none.
    let bare = json!({ "name": TOOL, "arguments": arguments, "inputResponses": { "approval": yes } });
    is_refused(&client.ask(NEWER, "tools/call", &bare).unwrap(), "not given out here");
    let mut argued = arguments.clone();
    argued["requestState"] = json!(state);
    argued["inputResponses"] = json!({ "approval": yes });
    assert_eq!(told(&client.call(NEWER, TOOL, &argued).unwrap())["code"], "invalid_arguments");
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (0, 0));
    receipt(&retry(&client, &arguments, &state, &yes));
    assert_eq!(refunds(&served.harness), 1);
}

#[test]
fn a_state_expires() {
    let served = serve(asking(DESK, "elicitation-within = \"700ms\""));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    let state = ask(&client, &arguments);
    thread::sleep(Duration::from_millis(800));
    is_refused(&retry(&client, &arguments, &state, &says("approve")), "expired");
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (0, 0));
    ask(&client, &arguments);
}

#[test]
fn another_process_takes_the_answer_and_the_policy_of_then_counts() {
    let Served { harness, server, desk } = serve(asking(DESK, ""));
    let able = |server: &Server| able(server, &desk, json!({ "elicitation": {} }));
    let [first, second] = ["R-1", "R-2"].map(|id| (refund(id, "broken"), ask(&able(&server), &refund(id, "broken"))));
    drop(server);
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let done = receipt(&retry(&able(&server), &first.0, &first.1, &says("approve")));
    drop(server);
    change_policy(&harness, DESK, "by = [\"alice\"]");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let refused = retry(&able(&server), &second.0, &second.1, &says("approve"));
    assert_eq!(told(&refused)["code"], "effect_not_permitted", "{refused:#}");
    waits(&able(&server).call(NEWER, TOOL, &second.0).unwrap());
    is_replay(&able(&server).call(NEWER, TOOL, &first.0).unwrap(), &done);
    assert_eq!((decisions(&harness).len(), refunds(&harness)), (1, 1));
}

#[test]
fn two_who_approve_at_once_are_one_effect() {
    let served = serve(asking(DESK, ""));
    let (client, arguments) = (served.client(), refund("R-1", "broken"));
    let states = [ask(&client, &arguments), ask(&client, &arguments)];
    let yes = says("approve");
    let results: Vec<Value> = thread::scope(|scope| {
        let retries: Vec<_> =
            states.iter().map(|state| scope.spawn(|| retry(&client, &arguments, state, &yes))).collect();
        retries.into_iter().map(|retry| retry.join().unwrap()).collect()
    });
    assert!(results.iter().any(|result| told(result)["status"] == "done"), "{results:#?}");
    for result in &results {
        assert_ne!(told(result)["status"], "refused", "{results:#?}");
    }
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (1, 1));
}

#[test]
fn nobody_is_asked_whose_client_cannot_or_whose_word_is_not_taken() {
    let served = serve(asking(DESK, ""));
    let arguments = refund("R-1", "broken");
    let other = token(&served.harness, "acme", "other");
    for client in [served.server.client(&served.desk), served.with(&other)] {
        waits(&client.call(NEWER, TOOL, &arguments).unwrap());
    }
    // Without a session there is nobody to ask in the older revision.
    waits(&served.client().call(OLDER, TOOL, &arguments).unwrap());
    assert_eq!((decisions(&served.harness).len(), refunds(&served.harness)), (0, 0));
}

#[test]
fn the_official_client_asks_its_person() {
    let rule = "elicitation-from = [\"stdio\", \"token:desk\"]";
    let (decline, cancel) = (json!({ "action": "decline" }), json!({ "action": "cancel" }));
    // Without a session the older revision has no way to ask over HTTP.
    for (over_http, mode, answer) in [
        (true, NEWER, says("approve")),
        (false, NEWER, says("approve")),
        (false, "legacy", says("approve")),
        (true, NEWER, decline.clone()),
        (false, "legacy", decline),
        (true, NEWER, cancel),
    ] {
        let served = serve(asking(rule, ""));
        let client = match over_http {
            true => Sdk::http_answering(served.server.address(), &served.desk, mode, &answer),
            false => Sdk::stdio_answering(&command(&served.harness), mode, &answer),
        };
        let result = client.unwrap().call(TOOL, &refund("R-1", "broken"), 60.0).unwrap();
        let made = match answer["action"].as_str() {
            Some("accept") => {
                assert_eq!(told(&result)["status"], "done", "{mode}: {result:#}");
                1
            }
            Some("decline") => {
                is_revoked(&result);
                0
            }
            _ => {
                waits(&result);
                0
            }
        };
        assert_eq!(refunds(&served.harness), made, "{mode}: {result:#}");
    }
}
