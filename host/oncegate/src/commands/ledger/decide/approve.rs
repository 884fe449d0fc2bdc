//! What a person approves: the whole request as it will be sent, and what is known of its target.

use std::fmt::Write as _;

use anyhow::Context;
use oncegate_contract::{Request, Resolved, Role};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Effects, Event, StreamId, StreamKind, consequences};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use super::epochs::{epochs, stored};
use crate::commands::ledger::{history, state_words};
use crate::print::{Tone, clean, hex, quoted};

/// See the module.
pub(crate) struct Shown {
    request: Request,
    digest: [u8; 32],
    /// Text that a model or a guest wrote: name and value.
    untrusted: Vec<(String, String)>,
    /// What is known of the target, a line each.
    known: Vec<String>,
}

impl Shown {
    pub(crate) async fn of(effects: &Effects, key: [u8; 32], row: &Effect) -> anyhow::Result<Self> {
        let proposal = row.proposal.as_deref().context("it has no stored request")?;
        let bytes = effects.ledger.load(&proposal.request).await.context("the stored request cannot be read")?;
        let request = serde_json::from_slice(&bytes).context("the stored request cannot be read")?;
        let fields = stored(effects, row).await?.map(|(_, resolved)| resolved);
        let untrusted = fields.as_ref().map(generated).unwrap_or_default();
        let mut known = known_epochs(effects, key, row).await?;
        known.extend(decisions(effects, key).await?);
        known.extend(claims(effects, key, row).await?);
        Ok(Self { request, digest: proposal.request_digest, untrusted, known })
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (tone, title, lines) in self.sections() {
            let _ = writeln!(text, "{}", tone.paint(title));
            lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text
    }

    /// The same for a client to show: without colours, and all that comes from outside in lines that a
    /// client which takes marks for formatting shows as they are.
    pub(crate) fn plain(&self) -> String {
        let mut text = String::new();
        for (_, title, lines) in self.sections() {
            let _ = writeln!(text, "{title}:\n");
            lines.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
            text.push('\n');
        }
        text
    }

    /// Titles, and the lines under each, cleaned.
    fn sections(&self) -> Vec<(Tone, &'static str, Vec<String>)> {
        let mut request = vec![format!("{} {}", clean(&self.request.method), clean(&self.request.url))];
        let headers = self.request.headers.iter();
        request.extend(headers.map(|(name, value)| format!("{}: {}", clean(name), clean(value))));
        request.extend(quoted(&self.request.body).into_iter().map(|line| format!("| {line}")));
        request.push(format!("request sha256:{}; the credential is attached when it is sent", hex(&self.digest)));
        let mut sections = vec![(Tone::Head, "What will be sent", request)];
        if !self.untrusted.is_empty() {
            let quoted = |(name, value): &(String, String)| format!("{}: {:?}", clean(name), clean(value));
            let lines = self.untrusted.iter().map(quoted).collect();
            sections.push((Tone::Warn, "Untrusted text in it, written by a model or a guest", lines));
        }
        let known = self.known.iter().map(|line| clean(line)).collect();
        sections.push((Tone::Head, "What is known of its target", known));
        sections
    }

    pub(super) fn json(&self) -> Value {
        let untrusted: serde_json::Map<String, Value> =
            self.untrusted.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        json!({
            "request": self.request, "request_digest": hex(&self.digest),
            "untrusted": untrusted, "known": self.known,
        })
    }
}

fn generated(resolved: &Resolved) -> Vec<(String, String)> {
    let fields = resolved.fields.iter().filter(|field| field.role == Role::Generated);
    fields.map(|field| (field.name.clone(), field.value.canonical())).collect()
}

async fn known_epochs(effects: &Effects, key: [u8; 32], row: &Effect) -> anyhow::Result<Vec<String>> {
    let Some(epochs) = epochs(effects, row).await? else {
        return Ok(vec!["other epochs: not known, its contract or its fields are not stored".to_owned()]);
    };
    let others: Vec<String> = epochs
        .into_iter()
        .filter(|epoch| epoch.key != key)
        .map(|epoch| {
            let receipt = epoch.row.receipt.as_ref().map(|receipt| format!(", receipt {receipt}")).unwrap_or_default();
            let reason = epoch.row.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let since = rfc3339(epoch.row.state_since);
            format!(
                "epoch {}: {}{receipt} since {since}{reason} ({})",
                epoch.row.epoch,
                state_words(&epoch.row),
                hex(&epoch.key[..6])
            )
        })
        .collect();
    Ok(if others.is_empty() { vec!["no other epoch of it".to_owned()] } else { others })
}

/// Who decided what of it so far.
async fn decisions(effects: &Effects, key: [u8; 32]) -> anyhow::Result<Vec<String>> {
    let records = effects.history(key).await.context("its history cannot be read")?;
    let decided = records.iter().filter(|record| record.event.decision().is_some());
    let mut lines: Vec<String> = decided
        .map(|record| {
            format!("version {}: {}, {}", record.version, record.event.name(), history::detail(&record.event))
        })
        .collect();
    let refused = records
        .iter()
        .filter(|record| matches!(record.event, Event::Classified { .. } | Event::NotSent { .. } | Event::Lost { .. }));
    lines.extend(refused.map(|record| format!("version {}: {}", record.version, history::detail(&record.event))));
    Ok(lines)
}

async fn claims(effects: &Effects, key: [u8; 32], row: &Effect) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for id in row.proposal.iter().flat_map(|proposal| &proposal.ties.claims) {
        let stream = StreamId { kind: StreamKind::Claim, id: *id };
        let records = effects.ledger.read(stream).await.context("a claim cannot be read")?;
        let holder = consequences::holder(records.iter().map(|record| &record.event));
        let name = hex(id.get(..6).unwrap_or_default());
        lines.push(match holder {
            None => format!("claim {name}: held by none"),
            Some(holder) if holder == key => format!("claim {name}: held by this effect"),
            Some(holder) => {
                let other = effects.get(holder).await.context("the holder of a claim cannot be read")?;
                let words = other.map(|row| format!("{} ({})", row.label(), state_words(&row))).unwrap_or_default();
                format!("claim {name}: held by {words} {}", hex(&holder[..6]))
            }
        });
    }
    Ok(lines)
}
