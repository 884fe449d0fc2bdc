//! `oncegate ledger show`: one effect with all that is known of it.

/// A line of a name and what it is. Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $name:expr, $($arg:tt)*) => {{ let _ = writeln!($text, "{:<15} {}", $name, clean(&format!($($arg)*))); }};
}

mod json;
mod next;
mod sent;

use std::fmt::Write as _;
use std::sync::Mutex;

use anyhow::{Context, bail};
use oncegate_contract::Request;
use oncegate_ledger::state::{Attempt, Effect};
use oncegate_ledger::{Effects, Event, LedgerError, Record, Stored, Ties};
use oncegate_sandbox::rfc3339;

use super::{decide, find, history, state_words, tone};
use crate::exit::Exit;
use crate::home::{Home, now_ms};
use crate::print::{self, Cell, Tone, clean, hex};
use next::Step;

pub(super) async fn run(home: &Home, named: &str, raw: Option<&str>) -> anyhow::Result<Exit> {
    let ledger = home.ledger_for_reading().await?;
    let key = find::one(&ledger, named).await?;
    let effects = Effects::new(ledger);
    let unreadable = || format!("the effect {} cannot be read", hex(&key));
    let records = effects.history(key).await.with_context(unreadable)?;
    let row = oncegate_ledger::effects::fold_records(&records).with_context(unreadable)?.with_context(unreadable)?;
    if let Some(attempt) = raw {
        return write_raw(&effects, key, &row, attempt).await;
    }
    let lacking = next::lacking(home, &effects, &row).await?;
    let next = next::steps(&effects.ledger, &home.ledger_command(), &key, &row, lacking.as_deref()).await?;
    let ties = row.ties().cloned().unwrap_or_default();
    let seen = Seen { effects, key, row, records, next, ties, missing: Mutex::default() };
    let text = if home.json() { print::json(&seen.json().await?, true)? } else { seen.text().await? };
    print::out(&text)?;
    match seen.missing.into_inner().ok().flatten() {
        Some(error) => Err(error).context("some of what belongs to the effect cannot be read"),
        None => Ok(Exit::Ok),
    }
}

/// The bytes as they came from the provider, and nothing else.
async fn write_raw(effects: &Effects, key: [u8; 32], row: &Effect, digits: &str) -> anyhow::Result<Exit> {
    use std::io::Write;
    let is_it = |attempt: &&Attempt| hex(&attempt.id).starts_with(&digits.to_ascii_lowercase());
    let found: Vec<&Attempt> = row.attempts.iter().filter(is_it).collect();
    let [attempt] = found[..] else {
        bail!(
            "{} attempts of this effect begin with {}; `oncegate ledger show` lists them",
            found.len(),
            clean(digits)
        );
    };
    let bytes = effects.raw_answer(key, attempt.id).await.context("the raw answer cannot be read")?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).context("the output cannot be written")?;
    Ok(Exit::Ok)
}

struct Seen {
    effects: Effects,
    key: [u8; 32],
    row: Effect,
    records: Vec<Record>,
    next: Vec<Step>,
    ties: Ties,
    /// A key that is missing though nobody erased it.
    missing: Mutex<Option<LedgerError>>,
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
        put!(text, "version", "{}", row.version);
        put!(text, "key", "{}", hex(&self.key));
        for (name, value) in notes(row) {
            put!(text, name, "{value}");
        }
        self.asked(&mut text).await?;
        for (name, value) in self.tied() {
            put!(text, name, "{value}");
        }
        self.other_epochs(&mut text).await?;
        if !row.attempts.is_empty() {
            let rows: Vec<_> = row.attempts.iter().map(|attempt| self.attempt_cells(attempt)).collect();
            let header =
                ["attempt", "generation", "host", "dispatched", "ended", "sent", "answer", "evidence", "outcome"];
            let _ = write!(text, "\n{}\n{}", Tone::Head.paint("Attempts"), print::table(&header, &rows));
        }
        let timeline = history::timeline(&self.records, now_ms());
        let _ = write!(text, "\n{}\n{timeline}", Tone::Head.paint("History"));
        self.sent(&mut text).await?;
        self.answers(&mut text).await?;
        if !self.next.is_empty() {
            let _ = writeln!(text, "\n{}", Tone::Head.paint("What can be done now"));
        }
        for step in &self.next {
            let _ = writeln!(text, "{}\n  {}", clean(&step.what), clean(&step.command));
        }
        Ok(text)
    }

    /// What else in the ledger it belongs to or uses.
    fn tied(&self) -> Vec<(&'static str, String)> {
        let ties = &self.ties;
        let mut tied = Vec::new();
        let mut tie = |name, value: Option<String>| tied.extend(value.map(|value| (name, value)));
        tie("parent", ties.parent.clone());
        tie("plan", ties.plan.clone());
        tie("permit", ties.permit.as_ref().map(|used| format!("{} of the grant {}", used.id, used.grant)));
        let claims: Vec<String> = ties.claims.iter().map(|claim| hex(&claim[..6])).collect();
        tie("claims", (!claims.is_empty()).then(|| claims.join(", ")));
        tie("completes", ties.completes.map(|target| hex(&target[..])));
        tie("undoes", ties.undoes.map(|target| hex(&target[..])));
        tied
    }

    async fn other_epochs(&self, text: &mut String) -> anyhow::Result<()> {
        let epochs = decide::epochs(&self.effects, &self.row).await?.unwrap_or_default();
        for other in epochs.iter().filter(|other| other.key != self.key) {
            let words = state_words(&other.row);
            let receipt = other.row.receipt.as_ref().map(|receipt| format!(", receipt {receipt}")).unwrap_or_default();
            put!(text, format!("epoch {}", other.row.epoch), "{words}{receipt} ({})", hex(&other.key[..6]));
        }
        Ok(())
    }

    async fn request(&self, stored: &Stored) -> anyhow::Result<Option<Request>> {
        let Some(bytes) = self.load(stored).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).context("the stored request cannot be read")
    }

    async fn load(&self, stored: &Stored) -> anyhow::Result<Option<Vec<u8>>> {
        match self.effects.ledger.load(stored).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.withholds_bytes() => {
                self.withheld(&error);
                Ok(None)
            }
            Err(error) => Err(error).context("stored bytes cannot be read"),
        }
    }

    /// In a few words, why bytes cannot be had. Damage is remembered.
    fn withheld(&self, error: &LedgerError) -> &'static str {
        match error {
            LedgerError::Erased => "erased: who and why is in the history",
            LedgerError::Gone { .. } => "dropped by retention",
            LedgerError::Locked { .. } => "encrypted, and its master key is not here",
            error => {
                if let Ok(mut missing) = self.missing.lock() {
                    missing.get_or_insert(error.clone());
                }
                "encrypted, and its key is missing"
            }
        }
    }

    async fn why_not(&self, stored: &Stored) -> &'static str {
        self.effects.ledger.load(stored).await.err().map_or("", |error| self.withheld(&error))
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
            Cell::new(hex(&attempt.host[..6])),
            Cell::new(rfc3339(attempt.at)),
            Cell::new(attempt.ended.map_or_else(|| "open".to_owned(), rfc3339)),
            Cell::new(attempt.sent_bytes.map_or_else(|| "not known".to_owned(), |bytes| format!("{bytes} bytes"))),
            Cell::new(answer),
            Cell::new(format!("{bytes} bytes in {pieces}")),
            Cell::new(outcome),
        ]
    }
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
    note("text", (row.erasures > 0).then(|| "erased; its receipt and its identity stay".to_owned()));
    let superseded = row.superseded_by.as_ref();
    note("superseded", superseded.map(|by| format!("by epoch {} for {}; it was {}", by.epoch, by.for_whom, by.before)));
    note("undone by", row.undone_by.map(|by| hex(&by)));
    notes
}
