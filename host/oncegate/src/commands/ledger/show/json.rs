//! One effect for machines, with every stored byte.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncegate_ledger::export::line;
use oncegate_ledger::state::Attempt;
use oncegate_ledger::{Dispatch, Event, Record, Stored};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use super::Seen;
use crate::commands::ledger::summary;
use crate::print::hex;

impl Seen {
    pub(super) async fn json(&self) -> anyhow::Result<Value> {
        let mut value = summary(&self.key, &self.row);
        if let Some(dispatch) = self.row.dispatch.as_deref() {
            value["dispatch"] = self.dispatch_json(dispatch).await?;
        }
        if let Some(proposal) = self.row.proposal.as_deref() {
            value["proposal"] = json!({
                "plan": proposal.plan,
                "contract": hex(&proposal.contract),
                "request": self.request(&proposal.request).await?,
                "request_digest": hex(&proposal.request_digest),
                "approved": self.row.approved.map(|digest| hex(&digest)),
            });
        }
        let mut attempts = Vec::new();
        for attempt in &self.row.attempts {
            attempts.push(self.attempt_json(attempt).await?);
        }
        value["attempts"] = attempts.into();
        let mut events = Vec::new();
        for record in &self.records {
            events.push(self.event_json(record.clone()).await?);
        }
        value["history"] = events.into();
        value["ties"] = json!(self.ties);
        value["decisions"] = json!(self.row.decisions);
        value["next"] = self.next.iter().map(|step| json!({ "what": step.what, "command": step.command })).collect();
        Ok(value)
    }

    async fn dispatch_json(&self, dispatch: &Dispatch) -> anyhow::Result<Value> {
        let mut lookups = Vec::new();
        for (operation, digest, answer) in &dispatch.lookups {
            let answer = self.load(answer).await?.map(|bytes| STANDARD.encode(bytes));
            lookups.push(json!({ "operation": operation, "lookup": hex(digest), "answer": answer }));
        }
        let fields = self.load(&dispatch.fields).await?.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        Ok(json!({
            "owner": dispatch.owner,
            "action": dispatch.action,
            "component": hex(&dispatch.component),
            "contract": hex(&dispatch.contract),
            "recipe": hex(&dispatch.recipe),
            "bound_fields": dispatch.fingerprint.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "fields": fields,
            "downstream_key": dispatch.downstream_key,
            "request": self.request(&dispatch.request).await?,
            "request_digest": hex(&dispatch.request_digest),
            "credential": dispatch.credential.as_ref().map(|(name, version)| json!({ "name": name, "version": hex(version) })),
            "lookups": lookups,
            "irreversible": dispatch.irreversible,
            "provider_dedupes": dispatch.provider_dedupes,
            "egress_direct": dispatch.egress_direct,
        }))
    }

    async fn attempt_json(&self, attempt: &Attempt) -> anyhow::Result<Value> {
        let gives_away = self.gives_away(attempt.id);
        let answer = match self.effects.raw_answer(self.key, attempt.id).await {
            // Whoever wants it asks for it by name, with --raw.
            Ok(_) if gives_away => None,
            Ok(bytes) => Some(STANDARD.encode(bytes)),
            Err(error) if error.withholds_bytes() => {
                self.withheld(&error);
                None
            }
            Err(error) => return Err(error).context("a raw answer cannot be read"),
        };
        let (pieces, bytes) = self.evidence(attempt);
        Ok(json!({
            "attempt": hex(&attempt.id),
            "host": hex(&attempt.host),
            "generation": attempt.generation,
            "resend": attempt.resend,
            "at": rfc3339(attempt.at),
            "ended": attempt.ended.map(rfc3339),
            "how": self.answered(attempt).map(|(_, ended)| ended),
            "sent_bytes": attempt.sent_bytes,
            "proof_of_no_effect": attempt.proof,
            "outcome": attempt.outcome,
            "evidence": { "pieces": pieces, "bytes": bytes },
            "answer": answer,
            "gives_its_credential_away": gives_away,
        }))
    }

    async fn event_json(&self, mut record: Record) -> anyhow::Result<Value> {
        let echoes = match &record.event {
            Event::Responded { echoes, .. } | Event::Evidence { echoes, .. } => *echoes,
            _ => false,
        };
        for stored in record.event.stored_mut() {
            if echoes || matches!(stored, Stored::Private(sealed) if sealed.erased) {
                *stored = Stored::Gone { len: stored.len(), digest: [0; 32] };
                continue;
            }
            if let Some(bytes) = self.load(stored).await? {
                *stored = Stored::Inline(bytes);
            }
        }
        let at = record.event.at().map(rfc3339);
        let mut value = line(&record);
        bytes_as_base64(&mut value["event"]);
        Ok(
            json!({ "seq": value["seq"], "version": value["version"], "at": at, "event": value["event"], "digest": value["digest"] }),
        )
    }
}

/// Stored bytes are `{"inline": "hex:…"}`; they become `{"base64": "…"}`.
fn bytes_as_base64(value: &mut Value) {
    if let Some(bytes) = inline(value) {
        *value = json!({ "base64": STANDARD.encode(bytes) });
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(bytes_as_base64),
        Value::Object(members) => members.values_mut().for_each(bytes_as_base64),
        _ => {}
    }
}

fn inline(value: &Value) -> Option<Vec<u8>> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let digits = members.get("inline")?.as_str()?.strip_prefix("hex:")?.as_bytes();
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks_exact(2).map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.last()?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stored_bytes_become_base64() {
        let mut value =
            json!({ "request": { "inline": "hex:6869" }, "label": "hex:6869", "list": [{ "inline": "hex:" }] });
        bytes_as_base64(&mut value);
        assert_eq!(value, json!({ "request": { "base64": "aGk=" }, "label": "hex:6869", "list": [{ "base64": "" }] }));
    }
}
