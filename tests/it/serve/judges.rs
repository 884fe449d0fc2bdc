//! Judges of others beside the protocol's own: the inspector, and a checker of `Host`, `Origin` and fetching.

use std::fs;
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Run, TENANT};
use oncegate_tests::mcp::http::Server;
use oncegate_tests::mcp::inspector::{Target, inspect};
use oncegate_tests::python;
use serde_json::{Value, json};

use super::{TOOL, command, http, is_replay, receipt, refunds};
use crate::agent::refund;

const SSRF_PACKAGE: &str = "mcp-ssrf-check==0.2.1";
/// The examples, whose schemas have all that WIT has.
const EXAMPLES: [&str; 5] = ["orders", "campaign", "notes", "posts", "datasets"];

fn with_examples(command: &mut Command) -> &mut Command {
    command.args(EXAMPLES.map(|name| Guest::example(name).unwrap().component))
}

#[track_caller]
fn result(run: &Run) -> Value {
    assert_eq!(run.code, Some(0), "{run:?}");
    run.json().unwrap()["result"].take()
}

#[test]
fn the_inspector_finds_schemas_portable() {
    let harness = Harness::new("refunds").unwrap();
    let mut stdio = command(&harness);
    with_examples(&mut stdio);
    let token = http::token(&harness, TENANT);
    let server = Server::start(with_examples(&mut http::command(&harness))).unwrap();
    for target in [Target::Stdio(&stdio), Target::Http(server.address(), &token)] {
        let run = inspect(&target, &["--strict", "--method", "tools/list"], harness.folder()).unwrap();
        let list = result(&run);
        let names: Vec<_> = list["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"effect_status") && names.contains(&TOOL), "{names:?}");
        // It says in many words what it finds, errors or not.
        assert!(!run.stderr.contains("schema"), "{}", run.stderr);
        // Over HTTP a tenant sees what the policy lets it use.
        let all = 2 + if matches!(target, Target::Stdio(_)) { EXAMPLES.len() + 1 } else { 0 };
        assert_eq!(names.len(), all, "{names:?}");
    }
}

#[test]
fn the_inspector_calls_and_hears_the_first_receipt() {
    let harness = Harness::new("refunds").unwrap();
    let stdio = command(&harness);
    let token = http::token(&harness, TENANT);
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let call = |target: &Target<'_>, era: &str, arguments: &Value| {
        let arguments = arguments.to_string();
        let words = ["--method", "tools/call", "--tool-name", TOOL, "--tool-args-json", &arguments];
        inspect(target, &[&words[..], &["--protocol-era", era]].concat(), harness.folder()).unwrap()
    };
    let first = receipt(&result(&call(&Target::Stdio(&stdio), "legacy", &refund("R-1", "broken"))));
    for (target, era) in [
        (Target::Stdio(&stdio), "modern"),
        (Target::Http(server.address(), &token), "legacy"),
        (Target::Http(server.address(), &token), "modern"),
    ] {
        is_replay(&result(&call(&target, era, &refund("R-1", "in pieces"))), &first);
    }
    assert_eq!(refunds(&harness), 1);
    // It would tell of an error.
    let wrong = call(&Target::Stdio(&stdio), "legacy", &json!({ "return_id": "R-1" }));
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
}

#[test]
fn no_name_no_page_and_no_argument_leads_elsewhere() {
    let harness = Harness::new("orders").unwrap();
    let token = http::token(&harness, TENANT);
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let python = python::install("venv-ssrf", SSRF_PACKAGE).unwrap();
    let report = harness.folder().join("report.json");
    for lifecycle in ["stateless", "stateful"] {
        let mut command = Command::new(python.with_file_name("mcp-ssrf-check"));
        command
            .args(["--url", &format!("http://{}/mcp", server.address()), "--lifecycle", lifecycle])
            .args(["--fetch-tool", "show-order", "--url-argument", "order_id", "--control-url", "O-1"])
            .args(["--settle", "0.1", "--timeout", "60"])
            .arg("--json-out")
            .arg(&report)
            .env("MCP_SSRF_CHECK_BEARER", &token);
        let run = Run::of(&mut command).unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
        let told: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
        assert_eq!(told["lifecycle"], lifecycle, "{told:#}");
        let checks = told["checks"].as_array().unwrap();
        for id in ["baseline", "host-header", "origin-header", "tool-wiring", "tool-url-ssrf"] {
            let check = checks.iter().find(|check| check["id"] == id).unwrap();
            assert_eq!(check["status"], "pass", "{lifecycle}: {check:#}");
        }
        let page = checks.iter().find(|check| check["id"] == "origin-null").unwrap();
        assert_eq!(page["evidence"]["response"]["status"], 403, "{page:#}");
    }
    // Nothing was sent of what looked like an address.
    let log = harness.provider().log().unwrap();
    let known = |path: &str| ["/orders/O-1", "/customers/C-1"].contains(&path);
    assert!(!log.is_empty() && log.iter().all(|one| known(&one.path)), "{log:?}");
}
