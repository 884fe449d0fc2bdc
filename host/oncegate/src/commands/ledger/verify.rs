//! `oncegate ledger verify`: every record, chain and history, and the head marker.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use oncegate_ledger::LedgerError;
use oncegate_ledger::private::keys_of;
use oncegate_ledger::verify::{Report, verify_export, verify_with};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Tone, clean};

pub(super) async fn run(home: &Home) -> anyhow::Result<Exit> {
    // Only opening it for effects compares the marker; a ledger that another process has open was
    // compared by that process.
    let marker = Marker::of(oncegate_ledger::open(&home.ledger_url()).await.map(drop));
    let ledger = home.ledger_as_stored().await?;
    let keys = keys_of(&ledger.identity());
    let report = verify_with(&*ledger, Some(&*keys)).await.context("the ledger cannot be checked")?;
    tell(home, &Checked { report, marker })
}

/// Of an export there is no marker; its own last line says where it ends.
pub(super) fn run_on_export(home: &Home, file: &Path) -> anyhow::Result<Exit> {
    let failed = || format!("the export {} cannot be read", file.display());
    let lines = BufReader::new(File::open(file).with_context(failed)?);
    let report = verify_export(lines).with_context(failed)?;
    tell(home, &Checked { report, marker: Marker::NotCompared("an export has none".to_owned()) })
}

fn tell(home: &Home, checked: &Checked) -> anyhow::Result<Exit> {
    print::out(&if home.json() { print::json(&checked.json()?, true)? } else { checked.text() })?;
    Ok(if checked.is_sound() { Exit::Ok } else { Exit::Damaged })
}

/// How the ledger stands to the marker of what it must contain.
enum Marker {
    /// It has what the marker says.
    Agrees,
    /// It lacks something, or the marker is lost or another ledger's.
    Disagrees(String),
    /// It was not compared.
    NotCompared(String),
}

impl Marker {
    fn of(opened: Result<(), LedgerError>) -> Self {
        match opened {
            // A sealed ledger is refused after its marker was compared.
            Ok(()) | Err(LedgerError::Sealed { .. }) => Self::Agrees,
            Err(error @ (LedgerError::Behind { .. } | LedgerError::Foreign { .. })) => {
                Self::Disagrees(error.to_string())
            }
            Err(error) => Self::NotCompared(error.to_string()),
        }
    }
}

struct Checked {
    report: Report,
    marker: Marker,
}

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text, $($arg)*); }};
}

impl Checked {
    fn is_sound(&self) -> bool {
        self.report.is_sound() && !matches!(self.marker, Marker::Disagrees(_))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        put!(text, "ledger      {}", self.report.checkpoint.ledger);
        self.counts(&mut text);
        match &self.marker {
            Marker::Agrees => put!(text, "marker      the ledger has what it says"),
            Marker::NotCompared(why) => put!(text, "marker      not compared: {}", clean(why)),
            Marker::Disagrees(why) => put!(text, "{} {}", Tone::Bad.paint("wrong:"), clean(why)),
        }
        for problem in &self.report.problems {
            let place = match (&problem.seq, &problem.stream) {
                (Some(seq), Some(stream)) => format!("record {seq} of {stream}: "),
                (Some(seq), None) => format!("record {seq}: "),
                (None, Some(stream)) => format!("{stream}: "),
                (None, None) => String::new(),
            };
            put!(text, "{} {}", Tone::Bad.paint("wrong:"), clean(&format!("{place}{}", problem.what)));
        }
        put!(text, "{}", self.conclusion());
        text
    }

    /// After damage nobody knows what was not read, so that only what was read is counted.
    fn counts(&self, text: &mut String) {
        let report = &self.report;
        if !report.is_sound() {
            put!(text, "records     {} were read", report.records);
            return;
        }
        put!(text, "records     {}", report.records);
        put!(text, "streams     {}", report.checkpoint.streams);
        put!(
            text,
            "bytes kept  {} outside their records, {} dropped by retention",
            report.byte_strings,
            report.dropped
        );
        let effects: Vec<String> = report.effects.iter().map(|(state, count)| format!("{count} {state}")).collect();
        put!(text, "effects     {}", if effects.is_empty() { "none".to_owned() } else { effects.join(", ") });
        put!(text, "frozen      {}", report.frozen);
        put!(text, "checkpoint  {} at record {}", report.checkpoint.digest, report.checkpoint.seq);
    }

    fn conclusion(&self) -> String {
        match (&self.marker, self.report.problems.len()) {
            (Marker::Disagrees(_), 0) => Tone::Bad
                .paint("behind: what is here is as it was written, and something is missing; find the newest copy"),
            (Marker::NotCompared(_), 0) => Tone::Warn
                .paint("every record, chain and history is as it was written; whether some are missing is not known"),
            (Marker::Agrees, 0) => Tone::Good.paint("sound: every record, chain and history is as it was written"),
            (_, count) => Tone::Bad.paint(&format!("damaged: {count} found wrong; restore the newest copy")),
        }
    }

    fn json(&self) -> anyhow::Result<Value> {
        let mut value = serde_json::to_value(&self.report)?;
        if !self.report.is_sound() {
            for counted in ["effects", "frozen", "byte_strings", "dropped", "checkpoint"] {
                value[counted] = Value::Null;
            }
        }
        let (agrees, why) = match &self.marker {
            Marker::Agrees => (Some(true), None),
            Marker::Disagrees(why) => (Some(false), Some(why)),
            Marker::NotCompared(why) => (None, Some(why)),
        };
        value["marker"] = json!({ "agrees": agrees, "why": why });
        value["ledger"] = self.report.checkpoint.ledger.as_str().into();
        value["sound"] = self.is_sound().into();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use oncegate_ledger::verify::{Problem, verify};

    use super::*;

    async fn checked(marker: Marker) -> Checked {
        let ledger = oncegate_ledger::init("memory:").await.unwrap();
        Checked { report: verify(&*ledger).await.unwrap(), marker }
    }

    #[tokio::test]
    async fn a_ledger_behind_its_marker_is_not_sound() {
        let error = LedgerError::Behind { at: "redb:x".to_owned(), why: "it ends at record 3".to_owned() };
        let found = checked(Marker::of(Err(error))).await;
        assert!(!found.is_sound());
        assert!(found.text().contains("it ends at record 3") && !found.text().contains("sound"), "{}", found.text());
        assert_eq!(found.json().unwrap()["marker"]["agrees"], false);
        let agrees = checked(Marker::of(Ok(()))).await;
        assert!(agrees.is_sound() && agrees.text().contains("sound: "));
    }

    #[tokio::test]
    async fn what_was_not_counted_is_not_told() {
        let mut found = checked(Marker::Agrees).await;
        found.report.problems.push(Problem { seq: None, stream: None, what: "from record 1 on: torn".to_owned() });
        let text = found.text();
        assert!(!text.contains("effects") && !text.contains("checkpoint"), "{text}");
        assert!(text.contains("damaged: 1 found wrong"), "{text}");
        assert_eq!(found.json().unwrap()["effects"], Value::Null);
    }
}
