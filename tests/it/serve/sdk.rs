//! The official MCP client of PyPI, in both revisions: it gives up, rewords, and loses its server.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::mcp::http::{NEWER, Server};
use oncegate_tests::mcp::sdk::Sdk;
use oncegate_tests::provider::mode::Mode;
use serde_json::Value;

use super::{TOOL, command, http, is_replay, receipt, refunds, told};
use crate::agent::{refund, with_limits};

/// A server that takes longer than the client waits.
const LIMITS: &str = "request-deadline = \"3s\"\nidle = \"3s\"\nanswer-within = \"30s\"";
const SHORT: f64 = 1.0;
const LONG: f64 = 60.0;

/// Rewords each time, until the call is not pending.
fn insist(client: &mut Sdk) -> Value {
    let started = Instant::now();
    for n in 0.. {
        let result = client.call(TOOL, &refund("R-1", &format!("said for the {n}. time")), LONG).unwrap();
        if result.get("failed").is_none() && told(&result)["status"] != "pending" {
            return result;
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "{result:#}");
        thread::sleep(Duration::from_secs(1));
    }
    unreachable!("the loop returns")
}

#[test]
fn a_client_that_gives_up_and_rewords_gets_the_first_receipt() {
    for mode in ["legacy", NEWER] {
        let harness = with_limits("refunds", LIMITS);
        harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut client = Sdk::stdio(&command(&harness), mode).unwrap();
        assert_eq!(client.tools, ["effect_status", TOOL]);
        let first = client.call(TOOL, &refund("R-1", "broken"), SHORT).unwrap();
        assert!(first["failed"].is_string(), "{mode}: {first:#}");
        let told = receipt(&insist(&mut client));
        let made = harness.provider().effects().unwrap();
        assert_eq!(made.len(), 1, "{mode}");
        assert_eq!(made[0].id, told, "{mode}");
        is_replay(&client.call(TOOL, &refund("R-1", "the next day"), LONG).unwrap(), &told);
    }
}

#[test]
fn a_server_that_is_killed_under_its_client_is_followed_by_another() {
    let harness = with_limits("refunds", LIMITS);
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut first = Sdk::stdio(&command(&harness), "legacy").unwrap();
    let call = first.call(TOOL, &refund("R-1", "broken"), SHORT).unwrap();
    assert!(call["failed"].is_string(), "{call:#}");
    // The client and the server that it started.
    let servers = Command::new("pgrep").args(["-P", &first.pid().to_string()]).output().unwrap();
    for pid in String::from_utf8(servers.stdout).unwrap().split_whitespace() {
        assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    }
    drop(first);
    let mut second = Sdk::stdio(&command(&harness), "legacy").unwrap();
    let told = receipt(&insist(&mut second));
    assert_eq!(harness.provider().effects().unwrap()[0].id, told);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn over_http_too() {
    for mode in ["legacy", NEWER] {
        let harness = with_limits("refunds", LIMITS);
        let token = http::token(&harness, "acme");
        let server = Server::start(&mut http::command(&harness)).unwrap();
        harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        let mut client = Sdk::http(server.address(), &token, mode).unwrap();
        let first = client.call(TOOL, &refund("R-1", "broken"), SHORT).unwrap();
        assert!(first["failed"].is_string(), "{mode}: {first:#}");
        let told = receipt(&insist(&mut client));
        let made = harness.provider().effects().unwrap();
        assert_eq!((made.len(), made[0].id.as_str()), (1, told.as_str()), "{mode}");
    }
}
