//! Clients that leave while their calls wait for a turn: what they leave behind is bounded.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use oncegate_tests::mcp::http::{OLDER, Server};
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use super::http::{command, token};
use super::{TOOL, peak_kb};
use crate::agent::{refund, with_limits};

/// As many guests as run at once.
const TURNS: usize = 64;
const LIMITS: &str = "answer-within = \"60s\"\nwall-time = \"110s\"\nrequest-deadline = \"100s\"\nidle = \"100s\"";
/// What the calls that wait may take, with all copies of their arguments: half of what all of them would.
const MORE_MAX_KB: u64 = 500 << 10;

#[test]
fn a_client_that_comes_and_goes_does_not_fill_the_memory() {
    let harness = with_limits("refunds", LIMITS);
    let token = token(&harness, "acme");
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
    let server = Server::start(&mut command(&harness)).unwrap();
    let client = server.client(&token);
    let send = |reason: &str| {
        let call = json!({ "name": TOOL, "arguments": refund("R-1", reason) });
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&client.request(OLDER, "tools/call", &call)).unwrap();
        stream
    };
    let _held: Vec<_> = (0..TURNS).map(|n| send(&format!("held {n}"))).collect();
    thread::sleep(Duration::from_secs(2));
    let before = peak_kb(server.pid());
    for n in 0..1_500 {
        let stream = send(&format!("{n} {}", "x".repeat(200 << 10)));
        // Long enough to be read, and no answer is waited for.
        thread::sleep(Duration::from_millis(8));
        drop(stream);
    }
    let after = peak_kb(server.pid());
    assert!(after < before + MORE_MAX_KB, "{before} kB before, {after} kB after");
    client.ask(OLDER, "tools/list", &json!({})).unwrap();
}
