//! How a task begins and ends: with the ordinary result, after a kill, by a cancel.

use oncegate_tests::harness::Harness;
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;

use super::*;
use crate::agent::with_limits;
use crate::serve::{is_replay, told};

fn slow(harness: &Harness) {
    let settings = Settings { latency_ms: 1_500, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
}

#[test]
fn a_long_call_is_a_task_with_the_ordinary_result() {
    for way in WAYS {
        let harness = Harness::new("refunds").unwrap();
        let token = token(&harness, way);
        let mut agent = Agent::start(&harness, way, &token);
        slow(&harness);
        let name = agent.begin(&refund("R-1", "broken"));
        let task = agent.get(&name).unwrap();
        assert_eq!(task["taskId"], name.as_str(), "{way:?}: {task:#}");
        let (ttl, poll) = if way.revision == OLDER { ("ttl", "pollInterval") } else { ("ttlMs", "pollIntervalMs") };
        assert_eq!((task[ttl].as_u64(), task[poll].as_u64()), (Some(3_600_000), Some(1_000)), "{way:?}: {task:#}");
        let result = agent.result(&name);
        let done = told(&result);
        assert_eq!((&done["status"], &done["replayed"]), (&json!("done"), &json!(false)), "{way:?}: {result:#}");
        let receipt = receipt(&result);
        let over = agent.get(&name).unwrap();
        assert_eq!((&over["status"], &over["statusMessage"]), (&json!("completed"), &done["message"]), "{over:#}");
        // It is told as often as it is asked for, and the same call is answered with it.
        assert_eq!(agent.result(&name), result);
        harness.provider().settings(&Settings::default()).unwrap();
        is_replay(&agent.settled(&refund("R-1", "in pieces")), &receipt);
        agent.kill();
        is_sound(&harness, &receipt);
    }
}

#[test]
fn a_tools_own_failure_is_told_as_each_revision_has_it() {
    for way in WAYS {
        let harness = with_limits("refunds", SHORT);
        let token = token(&harness, way);
        harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
        let mut agent = Agent::start(&harness, way, &token);
        let name = agent.begin(&refund("R-1", "broken"));
        let task = agent.over(&name);
        assert_eq!(task["status"], if way.revision == OLDER { "failed" } else { "completed" }, "{way:?}: {task:#}");
        let result = agent.result(&name);
        assert_eq!((&told(&result)["code"], &result["isError"]), (&json!("tool_failed"), &json!(true)), "{result:#}");
        assert_eq!(refunds(&harness), 0);
    }
}

#[test]
fn the_older_revision_is_told_of_tasks_as_it_has_them() {
    let hello = json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
    for http in [false, true] {
        let harness = Harness::new("refunds").unwrap();
        let way = Way { http, revision: OLDER };
        let token = token(&harness, way);
        let mut agent = Agent::start(&harness, way, &token);
        let told = match &mut agent.wire {
            Wire::Stdio(_) => {
                let mut client = Stdio::unopened(&mut crate::serve::command(&harness)).unwrap();
                client.ask("initialize", &hello).unwrap()
            }
            Wire::Http(_, client) => client.ask(OLDER, "initialize", &hello).unwrap(),
        };
        assert_eq!(told["capabilities"]["tasks"], tasks, "{told:#}");
        let list = agent.ask("tools/list", &json!({})).unwrap();
        let of = |name: &str| list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(of(TOOL)["execution"], json!({ "taskSupport": "optional" }), "{list:#}");
        assert_eq!(of("effect_status").get("execution"), None, "{list:#}");
        assert!(list.get("resultType").is_none(), "{list:#}");
        let mut status = call(OLDER, &json!({ "identifiers": ["R-1"] }));
        status["name"] = json!("effect_status");
        is_refused(agent.ask("tools/call", &status), -32601);
        if let Wire::Http(_, client) = &agent.wire {
            let found = client.ask(NEWER, "server/discover", &json!({})).unwrap();
            assert!(found["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{found:#}");
            let mut request = client.request(NEWER, "tasks/get", &declared(NEWER, &json!({ "taskId": "task_x" })));
            let at = request.windows(8).position(|bytes| bytes == b"Mcp-Name").unwrap() + "Mcp-Name: ".len();
            request[at] = b'T';
            let (status, body) = client.send(&request).unwrap();
            assert!(status == 400 && body.contains("-32020"), "{status} {body}");
            // A client that knows no tasks says nothing with the word.
            let plain = client.ask("2025-06-18", "tools/call", &call(OLDER, &refund("R-1", "x"))).unwrap();
            receipt(&plain);
            let list = client.ask("2025-06-18", "tools/list", &json!({})).unwrap();
            assert_eq!(list["tools"][1].get("execution"), None, "{list:#}");
        }
    }
}

#[test]
fn a_task_outlives_the_process_that_was_killed_after_its_effect() {
    for way in WAYS {
        let harness = with_limits("refunds", SHORT);
        let token = token(&harness, way);
        harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut first = Agent::start(&harness, way, &token);
        let name = first.begin(&refund("R-1", "broken"));
        until("no refund was made", || refunds(&harness) == 1);
        first.kill();

        let mut second = Agent::start(&harness, way, &token);
        let result = second.result(&name);
        let first_receipt = receipt(&result);
        assert_eq!(second.over(&name)["status"], "completed", "{way:?}");
        second.kill();
        is_sound(&harness, &first_receipt);
        // What was told is kept with it.
        let mut third = Agent::start(&harness, way, &token);
        assert_eq!(third.result(&name), result, "{way:?}");
    }
}

#[test]
fn a_task_whose_process_died_before_the_effect_is_not_lost() {
    for revision in [OLDER, NEWER] {
        let way = Way { http: true, revision };
        let harness = Harness::new("refunds").unwrap();
        let token = token(&harness, way);
        harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
        let mut first = Agent::start(&harness, way, &token);
        let name = first.begin(&refund("R-1", "broken"));
        first.kill();
        assert_eq!(refunds(&harness), 0);
        // The first one may not have come to it.
        harness.provider().clear().unwrap();

        let mut second = Agent::start(&harness, way, &token);
        // Nobody has asked for it: nothing is done.
        second.ask("tools/list", &json!({})).unwrap();
        assert_eq!(refunds(&harness), 0);
        assert_eq!(second.get(&name).unwrap()["status"], "working");
        let receipt = receipt(&second.result(&name));
        second.kill();
        is_sound(&harness, &receipt);
    }
}

#[test]
fn two_processes_that_take_over_a_task_make_one_effect() {
    let harness = with_limits("refunds", SHORT);
    let way = WAYS[0];
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let mut first = Agent::start(&harness, way, "");
    let name = first.begin(&refund("R-1", "broken"));
    first.kill();
    assert_eq!(refunds(&harness), 0);
    harness.provider().clear().unwrap();
    slow(&harness);
    let (mut second, mut third) = (Agent::start(&harness, way, ""), Agent::start(&harness, way, ""));
    assert_eq!(second.get(&name).unwrap()["status"], "working");
    assert_eq!(third.get(&name).unwrap()["status"], "working");
    let result = second.result(&name);
    assert_eq!(third.result(&name), result);
    let receipt = receipt(&result);
    second.kill();
    third.kill();
    is_sound(&harness, &receipt);
}

#[test]
fn a_cancelled_task_dispatches_nothing() {
    for way in WAYS {
        let harness = Harness::new("refunds").unwrap();
        let token = token(&harness, way);
        harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
        let mut agent = Agent::start(&harness, way, &token);
        let name = agent.begin(&refund("R-1", "broken"));
        let heard = agent.ask("tasks/cancel", &json!({ "taskId": name })).unwrap();
        match way.revision {
            OLDER => assert_eq!(heard["status"], "cancelled", "{heard:#}"),
            _ => assert_eq!(heard, json!({ "resultType": "complete" })),
        }
        let task = agent.over(&name);
        assert_eq!(task["status"], "cancelled", "{way:?}: {task:#}");
        assert!(task["statusMessage"].as_str().unwrap().contains("before it asked for an effect"), "{task:#}");
        let again = agent.ask("tasks/cancel", &json!({ "taskId": name }));
        if way.revision == OLDER {
            is_refused(again, -32602)
        } else {
            drop(again.unwrap())
        }
        assert_eq!(agent.get(&name).unwrap()["status"], "cancelled");
        assert_eq!(refunds(&harness), 0, "{way:?}");
        // It is not made again by whoever asks for it in another process.
        agent.kill();
        let mut agent = Agent::start(&harness, way, &token);
        assert_eq!(agent.get(&name).unwrap()["status"], "cancelled");
        assert_eq!(refunds(&harness), 0, "{way:?}");
        harness.provider().clear().unwrap();
        receipt(&agent.settled(&refund("R-1", "broken")));
        assert_eq!(refunds(&harness), 1, "{way:?}");
    }
}

#[test]
fn what_was_dispatched_is_not_cancelled_and_that_is_said() {
    for revision in [OLDER, NEWER] {
        let way = Way { http: false, revision };
        let harness = with_limits("refunds", SHORT);
        harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut agent = Agent::start(&harness, way, "");
        let name = agent.begin(&refund("R-1", "broken"));
        until("no refund was made", || refunds(&harness) == 1);
        agent.ask("tasks/cancel", &json!({ "taskId": name })).unwrap();
        let task = agent.over(&name);
        assert_eq!(task["status"], "cancelled", "{task:#}");
        assert!(task["statusMessage"].as_str().unwrap().contains("is not taken back"), "{task:#}");
        let receipt = receipt(&agent.settled(&refund("R-1", "broken")));
        agent.kill();
        is_sound(&harness, &receipt);
    }
}

#[test]
fn a_run_that_stopped_early_does_not_speak_for_one_that_was_killed() {
    let harness = with_limits("refunds", SHORT);
    let way = WAYS[0];
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut first = Agent::start(&harness, way, "");
    let (name, other) = (first.begin(&refund("R-1", "broken")), first.begin(&refund("R-1", "broken")));
    until("no refund was made", || refunds(&harness) == 1);
    first.kill();
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
    let mut second = Agent::start(&harness, way, "");
    assert_eq!(second.get(&name).unwrap()["status"], "working");
    let told = second.ask("tasks/cancel", &json!({ "taskId": name })).unwrap();
    assert!(told["statusMessage"].as_str().unwrap().contains("is not taken back"), "{told:#}");
    // Nor is one failed whose tool cannot look any more.
    assert_eq!(second.get(&other).unwrap()["status"], "working");
    thread::sleep(Duration::from_secs(6));
    assert_eq!(second.get(&other).unwrap()["status"], "working");
    harness.provider().clear().unwrap();
    let receipt = receipt(&second.result(&other));
    assert_eq!(refunds(&harness), 1);
    second.kill();
    is_sound(&harness, &receipt);
}

#[test]
fn one_process_asks_and_stops_what_another_runs() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let way = WAYS[0];
    let (mut first, mut second) = (Agent::start(&harness, way, ""), Agent::start(&harness, way, ""));
    let name = first.begin(&refund("R-1", "broken"));
    let task = second.get(&name).unwrap();
    assert_eq!((&task["status"], &task["statusMessage"]), (&json!("working"), &json!("Another process works on it.")));
    let told = second.ask("tasks/cancel", &json!({ "taskId": name })).unwrap();
    assert_eq!(told["status"], "cancelled", "{told:#}");
    assert_eq!(first.over(&name)["status"], "cancelled");
    harness.provider().clear().unwrap();

    slow(&harness);
    let name = first.begin(&refund("R-2", "broken"));
    assert_eq!(receipt(&second.result(&name)), harness.provider().effects().unwrap()[0].id);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn progress_and_the_end_are_told_where_a_connection_lasts() {
    let harness = Harness::new("campaign").unwrap();
    let settings = Settings { latency_ms: 200, ..Settings::default() };
    harness.provider().settings(&settings).unwrap();
    let mut client = Stdio::start(&mut crate::serve::command(&harness)).unwrap();
    let recipients: Vec<_> = (0..20).map(|n| format!("reader{n}@example.com")).collect();
    let call = json!({
        "name": "send-campaign",
        "arguments": { "subject": "News", "body": "Dear reader", "recipients": recipients },
        "task": { "ttl": 600_000 },
        "_meta": { "progressToken": "p", "dev.oncegate/context": { "trigger": "T-1" } },
    });
    let told = client.ask("tools/call", &call).unwrap();
    let name = told["task"]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(told["task"]["ttl"], 600_000);
    let result = client.ask("tasks/result", &json!({ "taskId": name })).unwrap();
    assert_eq!(crate::serve::told(&result)["status"], "done", "{result:#}");
    until("the end was not told", || {
        client.ask("ping", &json!({})).unwrap();
        client.heard.iter().any(|one| one["method"] == "notifications/tasks/status")
    });
    let of = |method: &str| client.heard.iter().filter(move |one| one["method"] == method).collect::<Vec<_>>();
    let progress = of("notifications/progress");
    let counts: Vec<f64> = progress.iter().map(|one| one["params"]["progress"].as_f64().unwrap()).collect();
    assert!(counts.len() > 1 && counts.is_sorted_by(|a, b| a < b), "{counts:?}");
    assert_eq!(counts.last(), Some(&20.0));
    assert!(progress.iter().all(|one| one["params"]["_meta"][RELATED_KEY]["taskId"] == name.as_str()), "{progress:?}");
    let ends = of("notifications/tasks/status");
    assert_eq!((ends.len(), &ends[0]["params"]["status"]), (1, &json!("completed")), "{ends:?}");
    assert_eq!(harness.provider().count("email").unwrap(), 20);
}
