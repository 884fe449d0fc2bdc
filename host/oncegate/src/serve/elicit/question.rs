//! What a person is asked: the whole request as it is stored, in the host's words, and a plain yes or no.

use oncegate_contract::safe_text;
use oncegate_ledger::Effects;
use oncegate_ledger::state::Effect;
use oncegate_sandbox::policy::{ApprovalRule, Policy};
use rmcp::model::{ElicitRequestParams, ElicitationSchema, EnumSchema, PrimitiveSchemaDefinition};

use super::answer::{APPROVE, DECISION, DENY};
use super::decision::SeenRow;
use crate::commands::ledger::{self, Shown};
use crate::print::clean;

/// Bytes of a question: what a person reads whole in a dialogue. Whoever cannot be shown all is not asked.
const TEXT_BYTES_MAX: usize = 6 << 10;
/// Lines of it: empty ones cost few bytes and push the rest out of sight.
const TEXT_LINES_MAX: usize = 100;

/// One question.
pub(super) struct Question {
    pub(super) seen: SeenRow,
    text: String,
}

/// What to do about the effects that wait.
pub(super) enum Next {
    /// Nothing can be asked here.
    Nothing,
    /// One was approved meanwhile: the call can go on.
    Decided,
    /// Ask.
    Ask(Box<Question>),
}

/// The first effect that this actor's approval would let through.
pub(super) async fn next(effects: &Effects, policy: &Policy, keys: &[[u8; 32]], actor: &str) -> Next {
    if policy.approvals.iter().all(|rule| rule.elicitation_from.is_empty()) {
        return Next::Nothing;
    }
    let mut next = Next::Nothing;
    for key in keys {
        match one(effects, policy, *key, actor).await {
            Ok(Next::Nothing) => {}
            Ok(Next::Decided) => next = Next::Decided,
            Ok(ask) => return ask,
            Err(error) => tracing::error!("a question to a client cannot be put: {error:#}"),
        }
    }
    next
}

async fn one(effects: &Effects, policy: &Policy, key: [u8; 32], actor: &str) -> anyhow::Result<Next> {
    let Some(row) = effects.get(key).await? else { return Ok(Next::Nothing) };
    let Some(seen) = SeenRow::of(key, &row) else { return Ok(Next::Nothing) };
    let rules = rules(effects, policy, &row).await?;
    if row.approved.is_some() && rules.iter().all(|rule| rule.is_met(&row.approved_by)) {
        return Ok(Next::Decided);
    }
    if !met_with(&rules, &row, actor) {
        return Ok(Next::Nothing);
    }
    let text = format!("{}{}{LAST}", head(&row), Shown::of(effects, key, &row).await?.plain());
    if !fits(&text) {
        tracing::info!(
            label = row.label(),
            bytes = text.len(),
            "too much to be shown by a client; `ledger approve` shows it"
        );
        return Ok(Next::Nothing);
    }
    Ok(Next::Ask(Box::new(Question { seen, text })))
}

/// Whether this actor's approval would let through what was shown. A row that has changed since is not
/// decided by it anyway.
pub(super) async fn counts(effects: &Effects, policy: &Policy, seen: &SeenRow, actor: &str) -> bool {
    let Ok(Some(row)) = effects.get(seen.key).await else { return false };
    if !seen.is(&row) {
        return true;
    }
    match rules(effects, policy, &row).await {
        Ok(rules) => met_with(&rules, &row, actor),
        Err(error) => {
            tracing::error!("whether an answer counts cannot be told: {error:#}");
            false
        }
    }
}

/// Whether every rule would be met, and this actor is needed for it.
fn met_with(rules: &[&ApprovalRule], row: &Effect, actor: &str) -> bool {
    let by: Vec<String> = row.approved_by.iter().cloned().chain([actor.to_owned()]).collect();
    let own = [actor.to_owned()];
    rules.iter().any(|rule| rule.is_met(&own)) && rules.iter().all(|rule| rule.is_met(&by))
}

/// The rules that the stored request has to meet; none where what is stored does not tell.
async fn rules<'a>(effects: &Effects, policy: &'a Policy, row: &Effect) -> anyhow::Result<Vec<&'a ApprovalRule>> {
    let Some((_, values)) = ledger::stored(effects, row).await? else { return Ok(Vec::new()) };
    let operation = row.proposal.as_deref().map(|proposal| proposal.operation.as_str());
    let rules = policy.approvals.iter().filter(|rule| Some(rule.operation.as_str()) == operation);
    Ok(rules.filter(|rule| rule.applies(&values)).collect())
}

fn fits(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && text.lines().count() <= TEXT_LINES_MAX
}

/// What it is about, in words that no model chose.
fn head(row: &Effect) -> String {
    let [tenant, account, owner, _, tool, operation] = row.names().unwrap_or_default().map(safe_text);
    format!(
        "Oncegate asks you to approve an effect: {}\n\nAn agent asked for it through the tool {tool} of {owner} (operation {operation}, tenant {tenant}, \
         account {account}, epoch {}). Nothing has been sent. What is sent, once, is this request and no other.\n\n",
        clean(row.label()),
        row.epoch
    )
}

const LAST: &str = "To approve, choose `approve` and send the form. `deny`, and declining, refuse it for good. Closing this \
                    decides nothing.";

impl Question {
    /// The form: one choice that nothing has made already.
    pub(super) fn form(&self) -> ElicitRequestParams {
        let choice = EnumSchema::builder([DENY, APPROVE].map(str::to_owned).to_vec())
            .title("Decision")
            .description("Whether the request above may be sent")
            .build();
        let mut schema =
            ElicitationSchema::new([(DECISION.to_owned(), PrimitiveSchemaDefinition::Enum(choice))].into());
        schema.required = Some(vec![DECISION.to_owned()]);
        ElicitRequestParams::FormElicitationParams { meta: None, message: self.text.clone(), requested_schema: schema }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_at_once_is_not_asked() {
        assert!(fits(&"x".repeat(TEXT_BYTES_MAX)) && fits(&"\n".repeat(TEXT_LINES_MAX)));
        assert!(!fits(&"x".repeat(TEXT_BYTES_MAX + 1)) && !fits(&"\n".repeat(TEXT_LINES_MAX + 1)));
    }

    #[test]
    fn nothing_is_chosen_before_the_person_chooses() {
        let seen = SeenRow { key: [0; 32], version: 1, epoch: 0, request_digest: [0; 32] };
        let form = serde_json::to_value(Question { seen, text: "may it?".to_owned() }.form()).unwrap();
        let schema = serde_json::json!({
            "type": "object",
            "properties": { "decision": {
                "type": "string", "title": "Decision", "description": "Whether the request above may be sent",
                "enum": ["deny", "approve"],
            } },
            "required": ["decision"],
        });
        assert_eq!(form, serde_json::json!({ "mode": "form", "message": "may it?", "requestedSchema": schema }));
    }
}
