//! What a person answered: a decision, or none.

use rmcp::model::{ClientResult, ElicitResult, ElicitationAction};
use rmcp::service::ServiceError;
use serde_json::Value;

/// The only member of the form.
pub(super) const DECISION: &str = "decision";
/// Its values; the one that does nothing comes first, since forms often show the first.
pub(super) const DENY: &str = "deny";
pub(super) const APPROVE: &str = "approve";

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The stored request may be sent.
    Approve,
    /// It may not, for good.
    Deny,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Verdict(Verdict),
    /// The question was put away, or answered with something that is no decision.
    Dismissed,
    /// There is nobody to ask any more.
    Gone,
}

/// A client's answer to a request.
pub(super) fn of_client(answered: Result<ClientResult, ServiceError>) -> Reply {
    match answered {
        Ok(ClientResult::ElicitResult(result)) => of_result(&result),
        Ok(_) | Err(ServiceError::McpError(_)) => Reply::Dismissed,
        Err(_) => Reply::Gone,
    }
}

/// A client's answer beside a state.
pub(super) fn of_json(response: &Value) -> Reply {
    serde_json::from_value(response.clone()).map_or(Reply::Dismissed, |result| of_result(&result))
}

fn of_result(result: &ElicitResult) -> Reply {
    match result.action {
        ElicitationAction::Decline => Reply::Verdict(Verdict::Deny),
        ElicitationAction::Accept => accepted(result.content.as_ref()),
        // Of what later revisions add nothing is known.
        _ => Reply::Dismissed,
    }
}

/// A form that was sent: only one that says the word, and nothing besides, decides.
fn accepted(content: Option<&Value>) -> Reply {
    let members = content.and_then(Value::as_object).filter(|members| members.len() == 1);
    match members.and_then(|members| members.get(DECISION)).and_then(Value::as_str) {
        Some(APPROVE) => Reply::Verdict(Verdict::Approve),
        Some(DENY) => Reply::Verdict(Verdict::Deny),
        _ => Reply::Dismissed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_word_approves() {
        let (yes, no) = (Reply::Verdict(Verdict::Approve), Reply::Verdict(Verdict::Deny));
        for (response, reply) in [
            (json!({ "action": "accept", "content": { "decision": "approve" } }), yes),
            (json!({ "action": "accept", "content": { "decision": "deny" } }), no),
            (json!({ "action": "decline" }), no),
            (json!({ "action": "decline", "content": { "decision": "approve" } }), no),
            (json!({ "action": "cancel" }), Reply::Dismissed),
            (json!({ "action": "cancel", "content": { "decision": "approve" } }), Reply::Dismissed),
            (json!({ "action": "accept" }), Reply::Dismissed),
            (json!({ "action": "accept", "content": {} }), Reply::Dismissed),
            (json!({ "action": "accept", "content": { "decision": true } }), Reply::Dismissed),
            (json!({ "action": "accept", "content": { "decision": "Approve" } }), Reply::Dismissed),
            (json!({ "action": "accept", "content": { "decision": "approve", "more": 1 } }), Reply::Dismissed),
            (json!({ "action": "accept", "content": "approve" }), Reply::Dismissed),
            (json!({ "action": "approve" }), Reply::Dismissed),
            (json!("approve"), Reply::Dismissed),
            (json!(null), Reply::Dismissed),
        ] {
            assert_eq!(of_json(&response), reply, "{response}");
        }
    }
}
