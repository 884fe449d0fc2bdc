//! Traces and metrics as a collector made of the official messages reads them; and one that never answers.

use std::process::Command;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Running, SECRET, root};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::python;
use serde_json::{Value, json};

use super::{TOOL, command, metrics, place, until};
use crate::agent::{refund, refunds};

const PACKAGE: &str = "opentelemetry-proto==1.45.2";
const KEY: &str = "collector-s3cret";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// The same in base64, as JSON has bytes.
const TRACE_ID: &str = "CvdlGRbNQ92ESOshHIAxnA==";
const PARENT_ID: &str = "t61rcWkgMzE=";

struct Collector {
    running: Running,
    url: String,
}

impl Collector {
    fn start(words: &[&str]) -> Self {
        let python = python::install("otlp", PACKAGE).unwrap();
        let script = root().join("tests/it/telemetry/collector.py");
        let running = Running::start(Command::new(python).arg(script).args(words)).unwrap();
        let told: Value = serde_json::from_str(&running.read_line(ANSWER_WITHIN).unwrap()).unwrap();
        Self { running, url: format!("http://127.0.0.1:{}", told["port"]) }
    }

    fn next(&self) -> Value {
        serde_json::from_str(&self.running.read_line(ANSWER_WITHIN).unwrap()).unwrap()
    }
}

fn watched(harness: &Harness, collector: &Collector) -> Stdio {
    let mut command = command(harness);
    command.args(["--otlp", &collector.url]).env("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={KEY}"));
    command.env("OTEL_BSP_SCHEDULE_DELAY", "100").env("OTEL_METRIC_EXPORT_INTERVAL", "200");
    command.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test").env("OTEL_SERVICE_NAME", "payments");
    Stdio::start(&mut command).unwrap()
}

fn call(client: &mut Stdio, id: &str, parent: &str) -> Value {
    let params = json!({ "name": TOOL, "arguments": refund(id, "a reason"), "_meta": { "traceparent": parent } });
    client.ask("tools/call", &params).unwrap()["structuredContent"].clone()
}

/// The spans of a request, if it is one of traces.
fn spans(told: &Value) -> Vec<Value> {
    let lists = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let resources = lists(&told["body"], "resourceSpans").into_iter();
    let scopes = resources.flat_map(|resource| lists(&resource, "scopeSpans"));
    scopes.flat_map(|scope| lists(&scope, "spans")).collect()
}

fn under<'a>(all: &'a [Value], parent: &Value, name: &str) -> Vec<&'a Value> {
    all.iter().filter(|span| span["parentSpanId"] == parent["spanId"] && span["name"] == name).collect()
}

/// What must never leave in any form.
fn holds_no_secret(told: &str, harness: &Harness) {
    let receipt = harness.provider().effects().unwrap()[0].id.clone();
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    let row: Value = serde_json::from_str(list.stdout.lines().next().unwrap()).unwrap();
    let key = row["key"].as_str().unwrap();
    for secret in [SECRET, "R-1001", "a reason", "acme", KEY, &receipt, key] {
        assert!(!told.contains(secret), "{secret} is in {told}");
    }
}

#[test]
fn a_call_is_a_tree_of_spans_in_its_callers_trace() {
    let collector = Collector::start(&[]);
    let harness = Harness::new("refunds").unwrap();
    let mut client = watched(&harness, &collector);
    assert_eq!(call(&mut client, "R-1001", PARENT)["status"], "done");
    let (mut all, mut texts, mut effects) = (Vec::new(), String::new(), None);
    until(|| {
        let told = collector.next();
        assert_eq!((&told["key"], &told["type"]), (&json!(KEY), &json!("application/x-protobuf")));
        assert_eq!(told["all_known"], true, "{told:#}");
        texts.push_str(&told["body"].to_string());
        all.extend(spans(&told));
        let text = told["body"].to_string();
        if text.contains("\"oncegate.effects\"") && text.contains("\"oncegate.calls\"") {
            effects = Some(told);
        }
        let names = ["tools/call issue-refund", "effect create-refund", "lookup get-return"];
        let whole = names.iter().all(|name| all.iter().any(|span| span["name"] == *name));
        (whole && effects.is_some()).then_some(())
    });
    let root = all.iter().find(|span| span["name"] == "tools/call issue-refund").unwrap();
    assert_eq!((&root["traceId"], &root["parentSpanId"]), (&json!(TRACE_ID), &json!(PARENT_ID)), "{root:#}");
    assert_eq!(root["kind"], "SPAN_KIND_SERVER");
    assert!(root["attributes"].to_string().contains("\"done\""), "{root:#}");
    let effect = under(&all, root, "effect create-refund")[0];
    for commit in ["commit dispatched", "commit responded"] {
        assert_eq!(under(&all, effect, commit).len(), 1, "{commit}: {all:#?}");
    }
    let sent = under(&all, effect, "POST");
    assert_eq!((sent.len(), &sent[0]["kind"]), (1, &json!("SPAN_KIND_CLIENT")), "{all:#?}");
    assert_eq!(under(&all, under(&all, root, "lookup get-return")[0], "GET").len(), 1);
    assert!(all.iter().all(|span| span["traceId"] == TRACE_ID), "{all:#?}");
    assert!(texts.contains("payments") && texts.contains("deployment.environment.name"));
    holds_no_secret(&texts, &harness);
    holds_no_secret(&client.errors(), &harness);
}

#[test]
fn what_a_caller_says_wrongly_of_its_trace_is_ignored() {
    let collector = Collector::start(&[]);
    let harness = Harness::new("refunds").unwrap();
    let mut client = watched(&harness, &collector);
    let long = format!("{PARENT}{}", "0".repeat(100_000));
    for (n, wrong) in ["", "00-x", "R-1001", long.as_str(), &PARENT.replace("00-", "ff-")].into_iter().enumerate() {
        assert_eq!(call(&mut client, "R-1001", wrong)["status"], if n == 0 { "done" } else { "already_done" });
    }
    let mut calls = Vec::new();
    until(|| {
        calls.extend(spans(&collector.next()).into_iter().filter(|span| span["name"] == "tools/call issue-refund"));
        (calls.len() == 5).then_some(())
    });
    for call in calls {
        assert!(call.get("parentSpanId").is_none() && call["traceId"] != TRACE_ID, "{call:#}");
    }
}

#[test]
fn a_collector_that_hangs_costs_no_call_anything() {
    let collector = Collector::start(&["hang"]);
    let harness = Harness::new("refunds").unwrap();
    let mut client = watched(&harness, &collector);
    assert_eq!(call(&mut client, "R-1001", PARENT)["status"], "done");
    assert!(collector.next()["hangs"].is_string());
    // More spans than have room.
    for _ in 0..5_000 {
        assert_eq!(call(&mut client, "R-1001", PARENT)["status"], "already_done");
    }
    let dropped = "oncegate_telemetry_exports_total{signal=\"spans\",result=\"dropped\"} ";
    let text = metrics(&place(&client));
    let dropped: f64 = text.lines().find_map(|line| line.strip_prefix(dropped)).unwrap().parse().unwrap();
    assert!(dropped > 0.0, "{text}");
    assert_eq!(refunds(&harness), 1);
    let began = Instant::now();
    let run = client.close(ANSWER_WITHIN).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(began.elapsed() < Duration::from_secs(45), "it waited for its collector");
}

#[test]
fn a_collector_that_is_not_there_costs_no_call_anything() {
    let harness = Harness::new("refunds").unwrap();
    let mut command = command(&harness);
    command.args(["--otlp", "http://127.0.0.1:9"]).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    let mut client = Stdio::start(&mut command).unwrap();
    assert_eq!(call(&mut client, "R-1001", PARENT)["status"], "done");
    let failed = "oncegate_telemetry_exports_total{signal=\"spans\",result=\"failed\"} ";
    let place = place(&client);
    until(|| {
        let text = metrics(&place);
        let failed = text.lines().find_map(|line| line.strip_prefix(failed))?.to_owned();
        (failed != "0").then_some(())
    });
}
