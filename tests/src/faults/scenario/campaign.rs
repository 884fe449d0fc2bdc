//! Emails: many a call, and the provider drops repeats of key and body.

use serde_json::json;

use super::Scenario;

pub(super) static SCENARIO: Scenario = Scenario {
    name: "campaign",
    tool: "send-campaign",
    context: &["trigger=matrix"],
    kind: "email",
    path: "/v1/emails",
    edits: &[("absent-after = \"60s\"", "absent-after=\"900ms\"")],
    target: |n| format!("reader{n}@example.com"),
    arguments: |ask| json!({ "subject": ask.words, "body": ask.words, "recipients": ask.targets }),
    target_of: |object| object["to"].as_str(),
    many: true,
    values: &[],
};
