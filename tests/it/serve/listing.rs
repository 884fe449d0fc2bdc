//! What a client is shown, and who may say for whom a call is.

use std::fs;

use oncegate_tests::harness::{Guest, Harness, Run};
use oncegate_tests::mcp::Stdio;
use serde_json::{Value, json};

use super::{TOOL, command, receipt, refunds, start, told};
use crate::agent::refund;

fn tool(list: &Value, name: &str) -> Value {
    let tools = list["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name} in {list:#}")).clone()
}

#[test]
fn tools_are_shown_with_what_the_host_enforces() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = Stdio::start(command(&harness).arg(Guest::example("orders").unwrap().component)).unwrap();
    let list = client.ask("tools/list", &json!({})).unwrap();
    let names: Vec<_> = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["effect_status", "issue-refund", "show-order"]);
    assert!(list.get("nextCursor").is_none());

    let acts = tool(&list, TOOL);
    let hints =
        json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true });
    assert_eq!(acts["annotations"], hints);
    assert_eq!(acts["inputSchema"]["required"], json!(["return_id", "reason"]));
    let amount = &acts["inputSchema"]["properties"]["amount"]["anyOf"][0]["anyOf"][0];
    assert_eq!(amount["maximum"], i64::MAX, "{acts:#}");
    assert_eq!(acts["outputSchema"]["type"], "object");
    // The operator has named these bytes, so the author's words are shown; of the other they are not.
    assert!(acts["description"].as_str().unwrap().starts_with("Refunds the customer"), "{acts:#}");
    let reads = tool(&list, "show-order");
    assert_eq!(reads["annotations"], json!({ "readOnlyHint": true, "openWorldHint": true }));
    assert!(!reads.to_string().contains("Where an order stands"), "{reads:#}");
    assert_eq!(reads["inputSchema"]["required"], json!(["order_id"]));
    assert_eq!(tool(&list, "effect_status")["annotations"]["readOnlyHint"], true);
}

#[test]
fn a_cursor_goes_on_behind_what_was_seen() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let list = client.ask("tools/list", &json!({ "cursor": "ZWZmZWN0X3N0YXR1cw" })).unwrap();
    assert_eq!(list["tools"].as_array().unwrap().len(), 1, "{list:#}");
    assert_eq!(list["tools"][0]["name"], TOOL);
    let id = client.request("tools/list", &json!({ "cursor": "?" })).unwrap();
    let answer = client.answer(id, oncegate_tests::mcp::ANSWER_WITHIN).unwrap();
    assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
}

#[test]
fn both_revisions_are_spoken() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = Stdio::unopened(&mut command(&harness)).unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.ask("server/discover", &json!({ "_meta": meta })).unwrap();
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{found:#}");
    let call = json!({ "name": TOOL, "arguments": refund("R-1", "broken"), "_meta": meta });
    let result = client.ask("tools/call", &call).unwrap();
    assert_eq!(result["resultType"], "complete", "{result:#}");
    receipt(&result);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn two_tools_of_one_name_are_not_served_together() {
    let harness = Harness::new("refunds").unwrap();
    let copy = harness.folder().join("again.wasm");
    fs::copy(harness.component(), &copy).unwrap();
    let run = Run::of(command(&harness).arg(&copy)).unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("issue-refund") && run.stderr.contains("--prefix"), "{}", run.stderr);

    let mut client = Stdio::start(command(&harness).arg("--prefix")).unwrap();
    let result = client.call("acme-refunds.issue-refund", &refund("R-1", "broken")).unwrap();
    receipt(&result);
}

#[test]
fn an_orchestrator_gives_facts_and_arguments_never_do() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    for (facts, code) in [
        (json!({ "tenant": "other" }), "effect_not_permitted"),
        (json!({ "plan": "P-1" }), "effect_not_permitted"),
        (json!({ "colour": "red" }), "invalid_arguments"),
        (json!("tenant=acme"), "invalid_arguments"),
    ] {
        let result = client.call_in(TOOL, &refund("R-1", "broken"), &facts).unwrap();
        assert_eq!(told(&result)["code"], code, "{facts} {result:#}");
    }
    let smuggled = json!({ "return_id": "R-1", "reason": "x", "tenant": "other" });
    assert_eq!(told(&client.call(TOOL, &smuggled).unwrap())["code"], "invalid_arguments");
    assert_eq!(refunds(&harness), 0);
    let facts = json!({ "tenant": "acme", "trigger": "T-1" });
    receipt(&client.call_in(TOOL, &refund("R-1", "broken"), &facts).unwrap());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_fact_that_the_policy_keeps_from_the_command_line_is_a_usage_error() {
    let harness = Harness::new("refunds").unwrap();
    let policy = harness.home().join("policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    let stricter = text.replace("tenant = [\"meta\", \"header\", \"serve\"]", "tenant = [\"header\"]");
    assert_ne!(text, stricter);
    fs::write(&policy, stricter).unwrap();
    let run = Run::of(&mut command(&harness)).unwrap();
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("tenant"), "{}", run.stderr);
}
