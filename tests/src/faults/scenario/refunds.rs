//! Refunds: one a call, and the provider has no idempotency of its own.

use serde_json::json;

use super::Scenario;

pub(super) static SCENARIO: Scenario = Scenario {
    name: "refunds",
    tool: "issue-refund",
    context: &[],
    kind: "refund",
    path: "/v1/refunds",
    edits: &[("absent-after = \"90s\"", "absent-after=\"900ms\"")],
    target: |n| format!("R-{}", 1_000 + n),
    arguments: |ask| {
        let mut arguments = json!({ "return_id": ask.targets.first(), "reason": ask.words });
        if let Some(value) = ask.value {
            arguments["amount"] = json!(value);
        }
        arguments
    },
    target_of: |object| object["metadata"]["return"].as_str(),
    many: false,
    values: &[1_000, 2_000, 3_000],
};
