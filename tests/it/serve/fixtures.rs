//! What the tools say that the conformance suite calls: it looks at the form alone.

use std::path::PathBuf;
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, TENANT};
use oncegate_tests::mcp::Stdio;
use oncegate_tests::mcp::http::{NEWER, OLDER, Server};
use oncegate_tests::provider::domains::Settings;
use serde_json::{Value, json};

use super::{http, told};

/// Effects of the tool that has progress.
pub(super) const NOTES: usize = 10;

/// With the guest that has the suite's tools.
pub(super) fn fixtures() -> Harness {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::var_os("ONCEGATE_GUESTS").map_or_else(|| root.join("../target/guests"), PathBuf::from);
    let guest = Guest {
        component: built.join("conformance.wasm"),
        contract: std::fs::read_to_string(root.join("guests/conformance/contract.toml")).unwrap(),
    };
    let options = Options { limits: "answer-within = \"60s\"".to_owned(), ..Options::default() };
    Harness::with(guest, options).unwrap()
}

fn command(harness: &Harness) -> Command {
    let mut command = http::command(harness);
    command.args(["--underscores", "--context", &format!("tenant={TENANT}"), "--context", "trigger=T-1"]);
    command
}

/// What the guest printed, as it was told.
fn printed(messages: &[Value]) -> Vec<&str> {
    let logs = messages.iter().filter(|message| message["method"] == "notifications/message");
    logs.map(|message| message["params"]["data"]["printed"].as_str().unwrap()).collect()
}

#[test]
fn names_are_identifiers_where_the_client_wants_them_so() {
    let harness = fixtures();
    let mut client = Stdio::start(&mut command(&harness)).unwrap();
    let list = client.ask("tools/list", &json!({})).unwrap();
    let tools = list["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let first = ["effect_status", "failing_job", "greet", "slow_compute"];
    let then = ["test_error_handling", "test_logging_tool", "test_simple_text", "test_streaming_elicitation"];
    let last = ["test_tool_with_logging", "test_tool_with_progress"];
    assert_eq!(names, [&first[..], &then[..], &last[..]].concat());
    let acts: Vec<_> = tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false).collect();
    assert_eq!(acts.len(), 1, "{list:#}");
    assert_eq!(acts[0]["name"], "test_tool_with_progress");
    assert_eq!(acts[0]["inputSchema"]["properties"], json!({}));
    // Under the other name there is none.
    assert!(client.call("test-simple-text", &json!({})).is_err());
    let mut other = Stdio::start(command(&harness).arg("--prefix")).unwrap();
    let result = other.call("conformance.test_simple_text", &json!({})).unwrap();
    assert_eq!(told(&result)["result"], "This is a simple text response for testing.");
}

#[test]
fn what_is_said_and_what_fails() {
    let harness = fixtures();
    let token = http::token(&harness, TENANT);
    let server = Server::start(http::command(&harness).arg("--underscores")).unwrap();
    let client = server.client(&token);
    for revision in [OLDER, NEWER] {
        let result = client.call(revision, "test_simple_text", &json!({})).unwrap();
        let said = told(&result);
        assert_eq!(said["result"], "This is a simple text response for testing.");
        assert_eq!((&said["status"], &said["effects"]), (&json!("done"), &json!([])));
        let result = client.call(revision, "test_error_handling", &json!({})).unwrap();
        let said = told(&result);
        assert_eq!(said["result"], json!({ "error": "This tool intentionally returns an error for testing" }));
        assert_eq!((&said["status"], &said["code"]), (&json!("refused"), &json!("tool_failed")));
    }
}

#[test]
fn what_is_printed_is_told_line_by_line_to_those_who_want_it() {
    let lines = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    let harness = fixtures();
    let token = http::token(&harness, TENANT);
    let server = Server::start(http::command(&harness).arg("--underscores")).unwrap();
    let client = server.client(&token);
    let call = |level: Option<&str>| {
        let mut params = json!({ "name": "test_tool_with_logging", "arguments": {} });
        if let Some(level) = level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
        }
        params
    };
    for (revision, level, wanted) in [
        (OLDER, None, &lines[..]),
        (NEWER, None, &[]),
        (NEWER, Some("info"), &lines[..]),
        (NEWER, Some("debug"), &lines[..]),
        (NEWER, Some("warning"), &[]),
    ] {
        let heard = client.hear(revision, "tools/call", &call(level)).unwrap();
        assert_eq!(printed(&heard), wanted, "{revision} {level:?}");
        let (answer, before) = heard.split_last().unwrap();
        assert_eq!(told(&answer["result"])["result"], "Tool with logging executed successfully");
        for log in before {
            assert_eq!(log["params"]["level"], "info", "{log:#}");
            assert_eq!(log["params"]["logger"], "test_tool_with_logging", "{log:#}");
        }
    }
}

#[test]
fn progress_and_prints_are_told_while_the_guest_runs() {
    let harness = fixtures();
    harness.provider().settings(&Settings { latency_ms: 100, ..Settings::default() }).unwrap();
    let mut client = Stdio::start(&mut command(&harness)).unwrap();
    let call = json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": 7 } });
    let result = client.ask("tools/call", &call).unwrap();
    let done = told(&result);
    assert_eq!((&done["status"], &done["result"]), (&json!("done"), &json!(NOTES)), "{result:#}");
    assert_eq!(done["effects"].as_array().unwrap().len(), NOTES);
    assert_eq!(harness.provider().count("note").unwrap(), NOTES);

    let progress: Vec<_> = client.heard.iter().filter(|told| told["method"] == "notifications/progress").collect();
    let counts: Vec<_> = progress.iter().map(|told| told["params"]["progress"].as_f64().unwrap()).collect();
    assert!(counts.len() >= 3 && counts.is_sorted_by(|a, b| a < b), "{counts:?}");
    assert_eq!(counts.last(), Some(&(NOTES as f64)));
    assert!(progress.iter().all(|told| told["params"]["progressToken"] == 7));
    assert_eq!(printed(&client.heard).len(), NOTES);
    let is_log = |told: &Value| told["method"] == "notifications/message";
    let first_print = client.heard.iter().position(is_log).unwrap();
    let last_progress = client.heard.iter().rposition(|told| !is_log(told)).unwrap();
    assert!(first_print < last_progress, "{:?}", client.heard);

    let again = client.ask("tools/call", &call).unwrap();
    assert_eq!(told(&again)["status"], "already_done", "{again:#}");
    assert_eq!(harness.provider().count("note").unwrap(), NOTES);
}
