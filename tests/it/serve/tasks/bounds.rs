//! Whose tasks are, how many and how long; and that nobody gets one who does not take it.

use oncegate_tests::harness::Harness;
use oncegate_tests::provider::mode::Mode;

use super::*;
use crate::agent::with_limits;
use crate::serve::{is_replay, told};

#[test]
fn a_task_is_its_tenants_alone() {
    let harness = with_limits("refunds", SHORT);
    let way = Way { http: true, revision: OLDER };
    let token = token(&harness, way);
    let others = [http::token(&harness, "other"), with_permit(&harness)];
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let mut agent = Agent::start(&harness, way, &token);
    let name = agent.begin(&refund("R-1", "broken"));
    for other in &others {
        for revision in [OLDER, NEWER] {
            let other = agent.with_token(other, revision);
            for method in ["tasks/get", "tasks/cancel"] {
                is_refused(other.ask(method, &json!({ "taskId": name })), -32602);
            }
        }
        let other = agent.with_token(other, OLDER);
        is_refused(other.ask("tasks/result", &json!({ "taskId": name })), -32602);
        assert_eq!(other.ask("tasks/list", &json!({})).unwrap(), json!({ "tasks": [] }));
        is_refused(agent.with_token(&token, NEWER).ask("tasks/list", &json!({})), -32601);
    }
    let update = json!({ "taskId": name, "inputResponses": {} });
    is_refused(agent.with_token(&others[0], NEWER).ask("tasks/update", &update), -32602);
    agent.with_token(&token, NEWER).ask("tasks/update", &update).unwrap();
    for nobodys in ["", "x", "task_", &name[..name.len() - 1], &format!("{}AAA=", &name[..name.len() - 4])] {
        is_refused(agent.get(nobodys), -32602);
    }
    let list = agent.ask("tasks/list", &json!({})).unwrap();
    assert_eq!((list["tasks"].as_array().unwrap().len(), &list["tasks"][0]["taskId"]), (1, &json!(name)), "{list:#}");
    // The other revision tells of the same task, to those that say that they take them.
    let newer = agent.with_token(&token, NEWER);
    assert_eq!(newer.ask("tasks/get", &json!({ "taskId": name })).unwrap()["taskId"], name.as_str());
    is_refused(newer.client.ask(NEWER, "tasks/get", &json!({ "taskId": name })), -32021);
    let mut liar = agent.with_token(&token, OLDER);
    liar.client.headers.push(("Oncegate-Context".to_owned(), "tenant=other".to_owned()));
    is_refused(liar.ask("tasks/get", &json!({ "taskId": name })), -32602);
}

fn with_permit(harness: &Harness) -> String {
    let arguments = ["token", "add", "--tenant", "acme", "--permit", "P-1", "--name", "with-permit"];
    let run = harness.run(&arguments).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout.trim().to_owned()
}

#[test]
fn who_takes_no_task_is_given_none() {
    for revision in [OLDER, NEWER] {
        let harness = with_limits("refunds", "answer-within = \"2s\"");
        let token = http::token(&harness, "acme");
        harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
        let server = Server::start(after_a_second(&mut http::command(&harness))).unwrap();
        let result = server.client(&token).call(revision, TOOL, &refund("R-1", "broken")).unwrap();
        assert_eq!(told(&result)["status"], "pending", "{revision}: {result:#}");
        assert!(result.get("taskId").is_none(), "{result:#}");
    }
}

#[test]
fn what_is_over_is_dropped_after_its_time() {
    let harness = Harness::new("refunds").unwrap();
    let mut agent = Agent::start(&harness, WAYS[0], "");
    let mut params = call(OLDER, &refund("R-1", "a reason to be forgotten"));
    params["task"] = json!({ "ttl": 30_000 });
    let told = agent.ask("tools/call", &params).unwrap();
    let name = told["task"]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(told["task"]["ttl"], 30_000);
    let receipt = receipt(&agent.result(&name));
    let arguments = hex("a reason to be forgotten");
    let kept = || harness.run(&["ledger", "export"]).unwrap().stdout;
    let tasks = |export: &str| export.lines().filter(|line| line.contains("task-begun")).count();
    assert_eq!(tasks(&kept()), 1);
    assert!(kept().contains(&arguments));
    until("the task stays", || agent.get(&name).is_err());
    is_refused(agent.get(&name), -32602);
    is_refused(agent.ask("tasks/result", &json!({ "taskId": name })), -32602);
    assert_eq!(agent.ask("tasks/list", &json!({})).unwrap()["tasks"], json!([]));
    until("its content stays", || tasks(&kept()) == 0);
    agent.kill();
    is_sound(&harness, &receipt);
    let mut longest = Agent::start(&harness, WAYS[0], "");
    params["task"] = json!({ "ttl": u64::MAX });
    let told = longest.ask("tools/call", &params).unwrap();
    assert_eq!(told["task"]["ttl"], 24 * 60 * 60 * 1_000, "{told:#}");
    let name = told["task"]["taskId"].as_str().unwrap().to_owned();
    is_replay(&longest.result(&name), &receipt);
}

#[test]
fn without_a_server_pruning_drops_what_is_over() {
    let harness = Harness::new("refunds").unwrap();
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let mut agent = Agent::start(&harness, WAYS[0], "");
    let mut params = call(OLDER, &refund("R-1", "broken"));
    params["task"] = json!({ "ttl": 1 });
    let told = agent.ask("tools/call", &params).unwrap();
    assert_eq!(told["task"]["ttl"], 1_000, "{told:#}");
    agent.kill();
    until("the task stays", || {
        let run = harness.run(&["ledger", "prune", "--json"]).unwrap();
        run.json().unwrap()["tasks_dropped"] == 1
    });
    let export = harness.run(&["ledger", "export"]).unwrap().stdout;
    assert!(!export.contains("task-begun") && export.contains("task-dropped"), "{export}");
    assert_eq!(harness.run(&["ledger", "verify"]).unwrap().code, Some(0));
    let mut agent = Agent::start(&harness, WAYS[0], "");
    is_refused(agent.get(told["task"]["taskId"].as_str().unwrap()), -32602);
    assert_eq!(refunds(&harness), 0);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn so_many_at_once_and_no_more() {
    let harness = with_limits("refunds", &format!("{SHORT}\nanswer-within = \"2s\""));
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
    let token = token(&harness, WAYS[2]);
    let mut agent = Agent::start(&harness, WAYS[2], &token);
    let mut names = Vec::new();
    // Guests end when the provider has not answered for some seconds: as fast as can be.
    let refused = loop {
        match agent.ask("tools/call", &call(OLDER, &refund("R-1", "broken"))) {
            Ok(told) => names.push(told["task"]["taskId"].as_str().unwrap().to_owned()),
            Err(error) => break error.to_string(),
        }
        assert!(names.len() < 1_000, "as many as one likes");
    };
    assert!(refused.contains("of one caller") && refused.contains("there may be"), "{refused}");
    assert!(names.len() >= 32, "{}", names.len());
    // Others have their own, and who has too many is answered as without tasks.
    let newer = agent.with_token(&token, NEWER);
    let result = newer.ask("tools/call", &call(NEWER, &refund("R-1", "broken"))).unwrap();
    assert!(result["resultType"] == "task" || told(&result)["status"] == "pending", "{result:#}");
    for name in &names {
        assert_ne!(agent.over(name)["status"], "completed");
    }
    assert_eq!(refunds(&harness), 0);
    let page = agent.ask("tasks/list", &json!({})).unwrap();
    if names.len() > 50 {
        let cursor = &page["nextCursor"];
        let next = agent.ask("tasks/list", &json!({ "cursor": cursor })).unwrap();
        assert_eq!(next["tasks"][0]["taskId"], names[50].as_str(), "{next:#}");
    }
    is_refused(agent.ask("tasks/list", &json!({ "cursor": "AAAA" })), -32602);
    harness.provider().clear().unwrap();
    // A machine that is busy enough comes to the bound of what is kept.
    if names.len() < 250 {
        let name = agent.begin(&refund("R-1", "broken"));
        receipt(&agent.result(&name));
        assert_eq!(refunds(&harness), 1);
    }
}

#[test]
fn the_same_call_beside_its_task_has_no_effect_of_its_own() {
    for revision in [OLDER, NEWER] {
        let way = Way { http: true, revision };
        let harness = with_limits("refunds", SHORT);
        let token = token(&harness, way);
        harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut agent = Agent::start(&harness, way, &token);
        let name = agent.begin(&refund("R-1", "broken"));
        let mut others = Vec::new();
        for reason in ["broken", "in pieces"] {
            let told = agent.ask("tools/call", &call(revision, &refund("R-1", reason))).unwrap();
            let other = told["task"]["taskId"].as_str().or(told["taskId"].as_str());
            // One that attached to the first long enough is told that it is under way.
            assert!(other.is_some() || told["structuredContent"].is_object(), "{told:#}");
            others.extend(other.map(str::to_owned));
        }
        let plain = agent.with_token(&token, OLDER);
        plain.client.call(OLDER, TOOL, &refund("R-1", "broken")).unwrap();
        let first = receipt(&agent.result(&name));
        for name in others {
            assert_eq!(receipt(&agent.result(&name)), first);
        }
        is_replay(&agent.settled(&refund("R-1", "once more")), &first);
        agent.kill();
        is_sound(&harness, &first);
    }
}
