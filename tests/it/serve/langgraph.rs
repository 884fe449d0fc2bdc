//! LangGraph with a checkpointer in SQLite: interrupted, replayed, killed and retried. A plain server beside
//! shows what the framework does to a tool without a host.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::drivers::{self, Driver, Plain, RUN_WITHIN};
use oncegate_tests::mcp::http::Server;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::http;
use crate::agent::with_limits;

/// The server takes longer than the client waits.
const LIMITS: &str = "request-deadline = \"8s\"\nidle = \"8s\"\nanswer-within = \"60s\"";
/// Seconds that a client waits.
const SHORT: f64 = 5.0;

/// A provider, Oncegate in front of it, and a plain server too.
struct Beside {
    harness: Harness,
    plain: Plain,
}

impl Beside {
    fn new(limits: &str) -> Self {
        let harness = with_limits("refunds", limits);
        let plain = Plain::start(&harness.provider_url()).unwrap();
        Self { harness, plain }
    }

    /// With Oncegate over standard input and output, which the framework starts for each call.
    fn run(&self, scenario: &str, return_id: &str) -> Value {
        let sqlite = self.harness.folder().join("checkpoints.sqlite");
        json!({ "scenario": scenario, "return_id": return_id, "sqlite": sqlite })
    }

    fn driver(&self) -> Driver {
        Driver::langgraph(&self.harness).unwrap()
    }

    /// The receipts of the refunds that were made for a return.
    fn made(&self, return_id: &str) -> Vec<String> {
        drivers::made(&self.harness, return_id).unwrap()
    }

    fn until_made(&self, return_id: &str, count: usize) {
        let started = Instant::now();
        while self.made(return_id).len() < count {
            assert!(started.elapsed() < RUN_WITHIN, "{:?}", self.made(return_id));
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn is_once(&self, return_id: &str, heard: &Value) {
        let made = self.made(return_id);
        assert_eq!((made.len(), &heard["receipt"]), (1, &json!(made[0])), "{heard:#}");
        assert_eq!(heard["said"], format!("Refunded: {}", made[0]), "{heard:#}");
    }

    fn hang_once(&self) {
        self.harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    }
}

fn with(mut run: Value, more: &Value) -> Value {
    let more = more.as_object().unwrap().clone();
    run.as_object_mut().unwrap().extend(more);
    run
}

#[test]
fn interrupted_after_the_tool_ran_and_resumed() {
    let beside = Beside::new("");
    let mut driver = beside.driver();
    let heard = driver.run(&beside.run("interrupted", "R-1")).unwrap();
    beside.is_once("R-1", &heard);
    assert_eq!(heard["asked"], 2, "the model was not asked again: {heard:#}");

    let plain = json!({ "url": beside.plain.url });
    let heard = driver.run(&with(beside.run("interrupted", "R-2"), &plain)).unwrap();
    assert_eq!(beside.made("R-2").len(), 2, "{heard:#}");
}

#[test]
fn replayed_from_the_checkpoint_before_the_tool() {
    let beside = Beside::new("");
    let mut driver = beside.driver();
    for (return_id, other, reword) in [("R-1", "R-11", false), ("R-2", "R-12", true)] {
        let heard = driver.run(&with(beside.run("replayed", return_id), &json!({ "reword": reword }))).unwrap();
        beside.is_once(return_id, &heard);

        let plain = json!({ "reword": reword, "url": beside.plain.url });
        let heard = driver.run(&with(beside.run("replayed", other), &plain)).unwrap();
        assert_eq!(beside.made(other).len(), 2, "{heard:#}");
    }
}

#[test]
fn killed_after_the_effect_and_resumed_from_sqlite() {
    let beside = Beside::new("request-deadline = \"3s\"\nidle = \"3s\"");
    let killed = |return_id: &str, more: &Value| {
        let run = with(beside.run("killed", return_id), more);
        beside.hang_once();
        let mut first = beside.driver();
        first.tell(&run).unwrap();
        beside.until_made(return_id, 1);
        assert!(first.kill().unwrap().was_killed());
        let heard = beside.driver().run(&run).unwrap();
        assert_eq!(heard["resumed"], true, "{heard:#}");
        heard
    };
    let heard = killed("R-1", &json!({}));
    beside.is_once("R-1", &heard);

    let heard = killed("R-2", &json!({ "url": beside.plain.url }));
    assert_eq!(beside.made("R-2").len(), 2, "{heard:#}");
}

#[test]
fn with_a_retry_policy_of_three_on_a_short_time_out() {
    let beside = Beside::new(LIMITS);
    let token = http::token(&beside.harness, "acme");
    let server = Server::start(&mut http::command(&beside.harness)).unwrap();
    let mut driver = beside.driver();
    let url = format!("http://{}/mcp", server.address());
    beside.hang_once();
    let short = json!({ "url": url, "token": token, "timeout": SHORT });
    let heard = driver.run(&with(beside.run("retried", "R-1"), &short)).unwrap();
    beside.is_once("R-1", &heard);
    assert!(heard["asked"].as_u64().unwrap() > 1, "nothing was retried: {heard:#}");

    beside.harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", None).unwrap();
    let short = json!({ "url": beside.plain.url, "timeout": SHORT });
    let heard = driver.run(&with(beside.run("retried", "R-2"), &short)).unwrap();
    assert!(heard["failed"].is_string(), "{heard:#}");
    beside.until_made("R-2", 3);
    assert_eq!(heard["asked"], 3, "{heard:#}");
}
