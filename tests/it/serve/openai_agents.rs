//! The OpenAI Agents SDK with a model that rewords and asks again, after a time-out and after an error.

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::drivers::{Driver, Plain, made};
use oncegate_tests::mcp::http::Server;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use super::http;
use crate::agent::with_limits;

fn spoil(harness: &Harness, mode: Mode) {
    harness.provider().mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
}

#[track_caller]
fn is_once(harness: &Harness, return_id: &str, heard: &Value) {
    let made = made(harness, return_id).unwrap();
    assert_eq!((made.len(), &heard["receipt"]), (1, &json!(made[0])), "{heard:#}");
    assert_eq!(heard["said"], format!("Refunded: {}", made[0]), "{heard:#}");
}

/// How often the model heard of its call.
fn answers(heard: &Value) -> usize {
    heard["heard"].as_array().unwrap().len()
}

#[test]
fn over_stdio_after_a_time_out() {
    // The agent waits for ten seconds.
    let harness = with_limits("refunds", "request-deadline = \"14s\"\nidle = \"14s\"\nanswer-within = \"60s\"");
    spoil(&harness, Mode::CompleteThenHang);
    let heard = Driver::openai_agents(&harness).unwrap().run(&json!({ "return_id": "R-1" })).unwrap();
    assert!(answers(&heard) > 1, "nothing was asked again: {heard:#}");
    is_once(&harness, "R-1", &heard);
}

#[test]
fn over_http_after_a_time_out_or_an_error() {
    let harness = with_limits("refunds", "request-deadline = \"8s\"\nidle = \"8s\"\nanswer-within = \"60s\"");
    let token = http::token(&harness, "acme");
    let server = Server::start(&mut http::command(&harness)).unwrap();
    let plain = Plain::start(&harness.provider_url()).unwrap();
    let mut driver = Driver::openai_agents(&harness).unwrap();
    let url = format!("http://{}/mcp", server.address());
    for (mode, return_id, other) in [(Mode::CompleteThenHang, "R-1", "R-11"), (Mode::CompleteThenReset, "R-2", "R-12")]
    {
        spoil(&harness, mode);
        let run = json!({ "return_id": return_id, "url": url, "token": token, "timeout": 5 });
        is_once(&harness, return_id, &driver.run(&run).unwrap());

        spoil(&harness, mode);
        let heard = driver.run(&json!({ "return_id": other, "url": plain.url, "timeout": 5 })).unwrap();
        assert_eq!(made(&harness, other).unwrap().len(), 2, "{heard:#}");
        assert!(answers(&heard) > 1, "{heard:#}");
    }
}
