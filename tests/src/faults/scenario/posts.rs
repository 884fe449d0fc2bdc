//! Posts: two effects a call, a one-shot challenge between them, and no way to read a post back.

use serde_json::json;

use super::Scenario;

pub(super) static SCENARIO: Scenario = Scenario {
    name: "posts",
    tool: "publish-post",
    context: &["trigger=matrix"],
    kind: "post",
    path: "/v1/posts",
    edits: &[],
    target: |n| format!("board-{n}"),
    arguments: |ask| json!({ "board": ask.targets.first(), "text": ask.words }),
    target_of: |object| object["board"].as_str(),
    many: false,
    values: &[],
};
