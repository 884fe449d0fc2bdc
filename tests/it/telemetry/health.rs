//! Health and readiness: they turn when the server drains, and when its ledger is taken away.

use std::fs;
use std::process::Command;

use oncegate_tests::client::Client;
use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use super::{TOOL, command, get, place, ready, until, until_ready};
use crate::agent::{refund, refunds};

#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = Stdio::start(&mut command(&harness)).unwrap();
    let place = place(&client);
    until_ready(&place);
    // It stays until what was dispatched is stored.
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "broken") })).unwrap();
    until(|| (refunds(&harness) == 1).then_some(()));
    let told = Command::new("kill").args(["-TERM", &client.pid().to_string()]).status().unwrap();
    assert!(told.success());
    // It may have ended before it was asked on a machine that is slow: then nobody is told that it is ready either.
    let drains = until(|| match Client::new(&place).send("GET", "/readyz", &[], b"") {
        Ok((503, body)) => Some(Some(body)),
        Ok(_) => None,
        Err(_) => Some(None),
    });
    if let Some(body) = drains {
        assert!(String::from_utf8(body).unwrap().contains("\"serving\":\"draining\""));
    }
    let run = client.wait(ANSWER_WITHIN).unwrap();
    assert_eq!((run.code, refunds(&harness)), (Some(0), 1), "{run:?}");
}

#[test]
fn a_server_whose_ledger_is_taken_away_is_not_ready() {
    let harness = Harness::new("refunds").unwrap();
    let client = Stdio::start(&mut command(&harness)).unwrap();
    let place = place(&client);
    until_ready(&place);
    let (ledger, away) = (harness.home().join("ledger.redb"), harness.home().join("away"));
    fs::rename(&ledger, &away).unwrap();
    let (_, told) = until(|| Some(ready(&place)).filter(|(status, _)| *status == 503));
    assert_eq!(told["checks"]["ledger"], "its file is gone", "{told:#}");
    assert!(!told.to_string().contains("redb"), "{told:#}");
    assert_eq!(get(&place, "/healthz").0, 200);
    fs::rename(&away, &ledger).unwrap();
    until_ready(&place);
}

#[test]
fn a_server_without_a_ledger_is_never_ready() {
    let harness = Harness::new("refunds").unwrap();
    let mut command = command(&harness);
    command.args(["--ledger", &format!("redb:{}", harness.folder().join("none.redb").display())]);
    let client = Stdio::start(&mut command).unwrap();
    let place = place(&client);
    let (status, told) = until(|| Some(ready(&place)).filter(|(_, told)| told["checks"]["ledger"] != "starting"));
    assert_eq!(
        (status, &told["checks"]["ledger"], &told["checks"]["policy"]),
        (503, &json!("not opened"), &json!("ok"))
    );
    assert_eq!(get(&place, "/healthz").0, 200);
}

#[test]
fn others_than_this_machine_and_other_requests_are_refused() {
    let harness = Harness::new("refunds").unwrap();
    let client = Stdio::start(&mut command(&harness)).unwrap();
    let place = place(&client);
    let rebound = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let address = place.trim_start_matches("http://");
    assert!(oncegate_tests::mcp::http::send(address, rebound.as_bytes()).unwrap().0 == 403);
    assert_eq!(get(&place, "/").0, 404);
    assert_eq!(Client::new(&place).send("POST", "/metrics", &[], b"").unwrap().0, 405);
}
