//! The official TypeScript client over HTTP: its connection is lost in the middle of a call.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::cut::Wire;
use oncegate_tests::mcp::drivers::{Driver, RUN_WITHIN};
use oncegate_tests::mcp::http::Server;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::{TOOL, http, is_replay, receipt, refunds, told};
use crate::agent::{refund, with_limits};

/// The provider's answer is waited for in vain, for longer than it takes to cut a wire.
const LIMITS: &str = "request-deadline = \"8s\"\nidle = \"8s\"";

struct Served {
    harness: Harness,
    wire: Wire,
    client: Driver,
    _server: Server,
}

/// A client with a refund under way that the provider has made and does not answer.
fn under_way() -> Served {
    let harness = with_limits("refunds", LIMITS);
    let token = http::token(&harness, "acme");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let wire = Wire::to(server.address()).unwrap();
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = Driver::typescript(wire.address(), &token).unwrap();
    client.tell(&call("arrived broken")).unwrap();
    let started = Instant::now();
    while refunds(&harness) == 0 {
        assert!(started.elapsed() < RUN_WITHIN, "no refund was made");
        thread::sleep(Duration::from_millis(5));
    }
    Served { harness, wire, client, _server: server }
}

fn call(reason: &str) -> Value {
    json!({ "tool": TOOL, "arguments": refund("R-1", reason) })
}

impl Served {
    /// The call was lost, and the next ones are made over another connection.
    fn happens_once(mut self) {
        let lost = self.client.heard().unwrap();
        assert!(lost["failed"].is_string(), "{lost:#}");
        let first = self.insist();
        let made = self.harness.provider().effects().unwrap();
        assert_eq!((made.len(), &made[0].id), (1, &first));
        is_replay(&self.client.run(&call("on the next day")).unwrap(), &first);
        assert_eq!(refunds(&self.harness), 1);
    }

    /// Rewords each time, until the call is not pending.
    fn insist(&mut self) -> String {
        let started = Instant::now();
        for n in 0.. {
            let result = self.client.run(&call(&format!("said for the {n}. time"))).unwrap();
            assert!(result.get("failed").is_none(), "{result:#}");
            if told(&result)["status"] != "pending" {
                return receipt(&result);
            }
            assert!(started.elapsed() < RUN_WITHIN, "{result:#}");
            thread::sleep(Duration::from_millis(500));
        }
        unreachable!("the loop returns")
    }
}

#[test]
fn a_wire_that_is_cut_under_a_call() {
    let served = under_way();
    assert!(served.wire.cut() > 0);
    served.happens_once();
}

#[test]
fn a_client_that_closes_under_its_own_call() {
    let mut served = under_way();
    served.client.tell(&json!({ "close": true })).unwrap();
    served.happens_once();
}
