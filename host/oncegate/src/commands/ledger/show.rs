//! `oncegate ledger show`: one effect with all that is known of it.

use std::fmt::Write as _;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncegate_contract::Request;
use oncegate_ledger::export::line;
use oncegate_ledger::state::{Attempt, Effect};
use oncegate_ledger::{Dispatch, Effects, Event, LedgerError, Record, Stored};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use super::{find, history, state_words, summary, tone};
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Cell, Tone, clean, hex};

pub(super) async fn run(home: &Home, digits: &str) -> anyhow::Result<Exit> {
    let ledger = home.ledger_for_reading().await?;
    let key = find::by_prefix(&ledger, digits).await?;
    let effects = Effects::new(ledger);
    let unreadable = || format!("the effect {} cannot be read", hex(&key));
    let records = effects.history(key).await.with_context(unreadable)?;
    let row = oncegate_ledger::effects::fold_records(&records).with_context(unreadable)?.with_context(unreadable)?;
    let seen = Seen { effects, key, row, records };
    let text = if home.json() { print::json(&seen.json().await?, true)? } else { seen.text().await? };
    print::out(&text)?;
    Ok(Exit::Ok)
}

struct Seen {
    effects: Effects,
    key: [u8; 32],
    row: Effect,
    records: Vec<Record>,
}

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $name:expr, $($arg:tt)*) => {{ let _ = writeln!($text, "{:<15} {}", $name, clean(&format!($($arg)*))); }};
}

impl Seen {
    async fn text(&self) -> anyhow::Result<String> {
        let row = &self.row;
        let mut text = format!("{}\n", Tone::Head.paint(&clean(row.label())));
        let _ = writeln!(
            text,
            "{:<15} {}",
            "state",
            tone(row).paint(&format!("{} since {}", state_words(row), rfc3339(row.state_since)))
        );
        put!(text, "key", "{}", hex(&self.key));
        for (name, value) in notes(row) {
            put!(text, name, "{value}");
        }
        if let Some(dispatch) = row.dispatch.as_deref() {
            self.dispatch(&mut text, dispatch).await?;
        }
        if !row.attempts.is_empty() {
            let rows: Vec<_> = row.attempts.iter().map(|attempt| self.attempt_cells(attempt)).collect();
            let header = ["attempt", "generation", "dispatched", "ended", "sent", "answer", "evidence", "outcome"];
            let _ = write!(text, "\n{}\n{}", Tone::Head.paint("Attempts"), print::table(&header, &rows));
        }
        let rows: Vec<_> = self.records.iter().map(event_cells).collect();
        let _ = write!(
            text,
            "\n{}\n{}",
            Tone::Head.paint("History"),
            print::table(&["version", "at", "event", "detail"], &rows)
        );
        Ok(text)
    }

    async fn dispatch(&self, text: &mut String, dispatch: &Dispatch) -> anyhow::Result<()> {
        put!(text, "tenant", "{}, account {}, owner {}", dispatch.tenant, dispatch.account, dispatch.owner);
        put!(text, "action", "{}, epoch {}, generation {}", dispatch.action, dispatch.epoch, dispatch.generation);
        put!(
            text,
            "asked by",
            "{} for {} of the component sha256:{}",
            dispatch.tool,
            dispatch.operation,
            hex(&dispatch.component)
        );
        put!(text, "contract", "sha256:{}", hex(&dispatch.contract));
        let names: Vec<&str> = dispatch.fingerprint.iter().map(|(name, _)| name.as_str()).collect();
        put!(text, "bound fields", "{}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        put!(text, "downstream key", "{}", dispatch.downstream_key);
        match self.request(dispatch).await? {
            Some(request) => {
                put!(text, "request", "{} {} ({} bytes of body)", request.method, request.url, request.body.len())
            }
            None => put!(text, "request", "dropped by retention"),
        }
        if let Some((name, version)) = &dispatch.credential {
            put!(text, "credential", "{name}, version {}", hex(version));
        }
        for (operation, digest, answer) in &dispatch.lookups {
            put!(text, "key found by", "{operation}, lookup {}, {} bytes of answer", hex(&digest[..6]), answer.len());
        }
        Ok(())
    }

    async fn request(&self, dispatch: &Dispatch) -> anyhow::Result<Option<Request>> {
        let Some(bytes) = self.load(&dispatch.request).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).context("the stored request cannot be read")
    }

    async fn load(&self, stored: &Stored) -> anyhow::Result<Option<Vec<u8>>> {
        match self.effects.ledger.load(stored).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(LedgerError::Gone { .. }) => Ok(None),
            Err(error) => Err(error).context("stored bytes cannot be read"),
        }
    }

    /// How many pieces of evidence were stored while the answer came, and their bytes.
    fn evidence(&self, attempt: &Attempt) -> (usize, u64) {
        let sizes = self.records.iter().filter_map(|record| match &record.event {
            Event::Evidence { attempt: id, bytes, .. } if *id == attempt.id => Some(bytes.len()),
            _ => None,
        });
        sizes.fold((0, 0), |(count, total), bytes| (count + 1, total + bytes))
    }

    fn answered(&self, attempt: &Attempt) -> Option<(u64, String)> {
        self.records.iter().find_map(|record| match &record.event {
            Event::Responded { attempt: id, total, ended, .. } if *id == attempt.id => {
                Some((*total, history::word(ended)))
            }
            _ => None,
        })
    }

    fn attempt_cells(&self, attempt: &Attempt) -> Vec<Cell> {
        let answer =
            self.answered(attempt).map_or_else(|| "-".to_owned(), |(total, ended)| format!("{total} bytes, {ended}"));
        let (pieces, bytes) = self.evidence(attempt);
        let outcome = attempt.outcome.as_ref().map_or_else(|| "-".to_owned(), history::of_outcome);
        vec![
            Cell::new(hex(&attempt.id[..4])),
            Cell::new(attempt.generation.to_string()),
            Cell::new(rfc3339(attempt.at)),
            Cell::new(attempt.ended.map_or_else(|| "open".to_owned(), rfc3339)),
            Cell::new(attempt.sent_bytes.map_or_else(|| "not known".to_owned(), |bytes| format!("{bytes} bytes"))),
            Cell::new(answer),
            Cell::new(format!("{bytes} bytes in {pieces}")),
            Cell::new(outcome),
        ]
    }

    async fn json(&self) -> anyhow::Result<Value> {
        let mut value = summary(&self.key, &self.row);
        if let Some(dispatch) = self.row.dispatch.as_deref() {
            value["dispatch"] = self.dispatch_json(dispatch).await?;
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
            "request": self.request(dispatch).await?,
            "request_digest": hex(&dispatch.request_digest),
            "credential": dispatch.credential.as_ref().map(|(name, version)| json!({ "name": name, "version": hex(version) })),
            "lookups": lookups,
            "irreversible": dispatch.irreversible,
            "provider_dedupes": dispatch.provider_dedupes,
            "egress_direct": dispatch.egress_direct,
        }))
    }

    async fn attempt_json(&self, attempt: &Attempt) -> anyhow::Result<Value> {
        let answer = match self.effects.raw_answer(self.key, attempt.id).await {
            Ok(bytes) => Some(STANDARD.encode(bytes)),
            Err(LedgerError::Gone { .. }) => None,
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
        }))
    }

    async fn event_json(&self, mut record: Record) -> anyhow::Result<Value> {
        for stored in record.event.stored_mut() {
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

fn event_cells(record: &Record) -> Vec<Cell> {
    vec![
        Cell::new(record.version.to_string()),
        Cell::new(record.event.at().map_or_else(|| "-".to_owned(), rfc3339)),
        Cell::new(record.event.name()),
        Cell::new(history::detail(&record.event)),
    ]
}

/// What a person has to know that not every row has.
fn notes(row: &Effect) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    let mut note = |name, value: Option<String>| notes.extend(value.map(|value| (name, value)));
    note("receipt", row.receipt.clone());
    note("other receipts", (!row.other_receipts.is_empty()).then(|| row.other_receipts.join(", ")));
    note("confirmed", row.confirmed.then(|| "its own lookup found it".to_owned()));
    note("reason", row.reason.clone());
    note("unknown because", row.unknown_why.clone());
    note("frozen", row.frozen.then(|| "only an operator goes on".to_owned()));
    note("failed later", row.failed_later.clone());
    let superseded = row.superseded_by.as_ref();
    note("superseded", superseded.map(|by| format!("by epoch {} for {}; it was {}", by.epoch, by.for_whom, by.before)));
    note("undone by", row.undone_by.map(|by| hex(&by)));
    notes
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
