//! What happened and what was told, compared: the provider's own objects are the truth.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use super::row::Tally;
use super::system::{Held, System};
use crate::harness::Run;
use crate::provider::domains::Effect;

/// States that nothing has to leave.
const DECIDED: [&str; 5] = ["done", "no-effect", "revoked", "superseded", "undone"];

/// What a caller was told last about one target.
#[derive(Clone, Debug, Default)]
struct Last {
    status: String,
    next_action: String,
}

/// Everything that was told about one target.
#[derive(Clone, Debug, Default)]
struct Subject {
    receipts: BTreeSet<String>,
    /// A success without a receipt.
    empty_success: bool,
    last: Last,
}

/// The targets of a cell and what was heard of them.
#[derive(Debug, Default)]
pub struct Book {
    subjects: BTreeMap<String, Subject>,
    /// Counted already: receipts that were lost by the time of a kill.
    pub lost: u64,
    /// Counted already: successes told to a caller whose bound value was never sent.
    pub wrong: u64,
    /// Processes that did not end by themselves.
    pub cut_off: u64,
}

impl Book {
    /// For these targets.
    pub fn of(targets: &[String]) -> Self {
        let subjects = targets.iter().map(|target| (target.clone(), Subject::default())).collect();
        Self { subjects, lost: 0, wrong: 0, cut_off: 0 }
    }

    /// Takes what a process said before its end; a killed one may have said nothing. True for success.
    pub fn hear(&mut self, run: &Run, asked: &[String]) -> bool {
        self.cut_off += u64::from(run.was_killed());
        let mut success = false;
        for line in run.stdout.lines() {
            if let Ok(told) = serde_json::from_str::<Value>(line) {
                success = self.hear_one(&told, asked);
            }
        }
        success
    }

    /// Takes one answer. True for success.
    pub fn hear_one(&mut self, told: &Value, asked: &[String]) -> bool {
        let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let last = Last { status: word("status"), next_action: word("next_action") };
        let success = is_success(&last.status);
        for target in asked {
            if let Some(subject) = self.subjects.get_mut(target) {
                subject.last = last.clone();
            }
        }
        let mut with_receipt = BTreeSet::new();
        for effect in told["effects"].as_array().into_iter().flatten() {
            let label = effect["label"].as_str().unwrap_or_default();
            let Some(target) = label.rsplit(' ').find(|word| self.subjects.contains_key(*word)) else { continue };
            let Some(subject) = self.subjects.get_mut(target) else { continue };
            let receipt = effect["receipt"].as_str().filter(|_| effect["state"] == "done");
            if let Some(receipt) = receipt {
                subject.receipts.insert(receipt.to_owned());
                subject.last.status = "done".to_owned();
                with_receipt.insert(target.to_owned());
            }
        }
        if success {
            for target in asked.iter().filter(|target| !with_receipt.contains(*target)) {
                if let Some(subject) = self.subjects.get_mut(target) {
                    subject.empty_success = true;
                }
            }
        }
        success
    }

    /// Targets that were not told as done.
    pub fn open(&self) -> Vec<String> {
        let open = self.subjects.iter().filter(|(_, subject)| !is_success(&subject.last.status));
        open.map(|(target, _)| target.clone()).collect()
    }

    /// Compares with what the provider made and what the ledger has.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn judge(&self, system: &dyn System) -> Result<Tally> {
        let scenario = system.scenario();
        let made = system.provider().effects()?;
        let mut objects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
        for effect in made.iter().filter(|effect| effect.kind == scenario.kind) {
            objects.entry((scenario.target_of)(&effect.object).unwrap_or_default()).or_default().push(effect);
        }
        let rows = system.rows()?;
        // The host's label names the key's parts, the target among them.
        let mut held: BTreeMap<&str, &Held> = BTreeMap::new();
        for row in rows.iter().flatten() {
            held.extend(row.label.split(' ').map(|word| (word, row)));
        }
        let mut tally = Tally { lost: self.lost, wrong: self.wrong, cut_off: self.cut_off, ..Tally::default() };
        for (target, subject) in &self.subjects {
            let objects = objects.get(target.as_str()).map(Vec::as_slice).unwrap_or_default();
            let row = held.get(target.as_str()).copied();
            tally.add(subject.judge(objects, row, rows.is_some()));
        }
        Ok(tally)
    }
}

impl Subject {
    fn judge(&self, objects: &[&Effect], row: Option<&Held>, shows_rows: bool) -> Tally {
        let first = row.and_then(|row| row.receipt.as_deref());
        let mut tally = Tally { effects: 1, duplicates: objects.len().saturating_sub(1) as u64, ..Tally::default() };
        for receipt in &self.receipts {
            tally.wrong += u64::from(!objects.iter().any(|effect| effect.id == *receipt));
            tally.lost += u64::from(shows_rows && first != Some(receipt));
        }
        tally.wrong += u64::from(self.empty_success);
        // Told differently at different times: one of the two is not this effect's.
        tally.wrong += u64::from(self.receipts.len() > 1 && objects.len() < 2);
        let decided = row.is_some_and(|row| DECIDED.contains(&row.state.as_str()) && !row.frozen);
        if is_success(&self.last.status) {
            tally.stuck += u64::from(shows_rows && !decided);
            return tally;
        }
        let person = self.last.next_action == "ask_person" || row.is_some_and(|row| row.frozen);
        tally.decisions += u64::from(person);
        tally.stuck += u64::from(!person && !decided && row.is_some());
        tally.stuck += u64::from(!person && row.is_none() && !objects.is_empty());
        let known = objects.is_empty() || row.is_some_and(|row| row.state == "done");
        tally.over_refusals += u64::from(known);
        tally
    }
}

fn is_success(status: &str) -> bool {
    matches!(status, "done" | "already_done")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(id: &str) -> Effect {
        Effect { kind: "refund".to_owned(), id: id.to_owned(), at_ms: 0, object: json!({}) }
    }

    fn row(state: &str, receipt: Option<&str>) -> Held {
        Held {
            label: "refund R-1".to_owned(),
            state: state.to_owned(),
            receipt: receipt.map(str::to_owned),
            frozen: false,
        }
    }

    fn told(status: &str, next_action: &str, receipt: Option<&str>) -> Subject {
        let mut book = Book::of(&["R-1".to_owned()]);
        let state = if receipt.is_some() { "done" } else { "unknown" };
        let effects = json!([{ "label": "refund R-1", "state": state, "receipt": receipt }]);
        book.hear_one(
            &json!({ "status": status, "next_action": next_action, "effects": effects }),
            &["R-1".to_owned()],
        );
        book.subjects.remove("R-1").unwrap()
    }

    #[test]
    fn each_fault_is_counted_and_nothing_else() {
        let (one, two) = (object("re_1"), object("re_2"));
        let one_effect = Tally { effects: 1, ..Tally::default() };
        let done = row("done", Some("re_1"));
        let right = told("done", "none", Some("re_1"));
        assert_eq!(right.judge(&[&one], Some(&done), true), one_effect);
        assert_eq!(right.judge(&[&one, &two], Some(&done), true), Tally { duplicates: 1, ..one_effect });
        assert_eq!(right.judge(&[&two], Some(&done), true), Tally { wrong: 1, ..one_effect });
        let forgot = row("done", None);
        assert_eq!(right.judge(&[&one], Some(&forgot), true), Tally { lost: 1, ..one_effect });
        assert_eq!(right.judge(&[&one], Some(&row("unknown", Some("re_1"))), true), Tally { stuck: 1, ..one_effect });
        let empty = told("done", "none", None);
        assert_eq!(empty.judge(&[&one], Some(&done), true), Tally { wrong: 1, ..one_effect });
    }

    #[test]
    fn what_is_open_is_stuck_or_a_persons() {
        let one = object("re_1");
        let one_effect = Tally { effects: 1, ..Tally::default() };
        let unknown = row("unknown", None);
        let waits = told("pending", "wait", None);
        assert_eq!(waits.judge(&[&one], Some(&unknown), true), Tally { stuck: 1, ..one_effect });
        let asks = told("pending", "ask_person", None);
        assert_eq!(asks.judge(&[&one], Some(&unknown), true), Tally { decisions: 1, ..one_effect });
        let nothing_happened = Tally { decisions: 1, over_refusals: 1, ..one_effect };
        assert_eq!(asks.judge(&[], Some(&unknown), true), nothing_happened);
        let refused = told("refused", "none", None);
        let done = row("done", Some("re_1"));
        assert_eq!(refused.judge(&[&one], Some(&done), true), Tally { over_refusals: 1, ..one_effect });
    }
}
