//! Plans: nothing is sent by freezing, only what was frozen is sent by running, and a run that is cut
//! off at any moment is taken up by the next one. The provider's count decides.

mod gate;
mod lists;
mod runs;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use oncegate_tests::harness::{Guest, Harness, Options, Run, TENANT};
use serde_json::{Value, json};

use crate::agent::refunds;

/// A guest whose amounts are in the plan, and whose dry run returns the targets.
fn payouts() -> Harness {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::var_os("ONCEGATE_GUESTS").map_or_else(|| root.join("../target/guests"), PathBuf::from);
    let guest = Guest {
        component: built.join("payouts.wasm"),
        contract: fs::read_to_string(root.join("guests/payouts/contract.toml")).unwrap(),
    };
    Harness::with(guest, Options::default()).unwrap()
}

/// Writes a list and gives its path.
fn list(harness: &Harness, name: &str, text: &str) -> String {
    let file = harness.folder().join(name);
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// `oncegate plan freeze` with a list of the test's own.
fn freeze(harness: &Harness, plan: &str, tool: &str, more: &[&str]) -> Run {
    let component = harness.component().display().to_string();
    let tenant = format!("tenant={TENANT}");
    let mut arguments = vec!["--json", "plan", "freeze", plan, &component, tool, "--context", &tenant];
    arguments.extend(["--reason", "a test", "--actor", "tester"]);
    arguments.extend(more);
    harness.run(&arguments).unwrap()
}

#[track_caller]
fn frozen(run: &Run) -> Value {
    assert_eq!(run.code, Some(0), "{run:?}");
    run.json().unwrap()
}

/// `oncegate plan run` to its end.
fn drive(harness: &Harness, plan: &str, more: &[&str]) -> Run {
    let component = harness.component().display().to_string();
    let mut arguments = vec!["plan", "run", plan, &component];
    arguments.extend(more);
    harness.run(&arguments).unwrap()
}

/// How a plan stands, and the exit code that says whether something is open.
struct Standing {
    json: Value,
    code: Option<i32>,
}

impl Standing {
    #[track_caller]
    fn of(harness: &Harness, plan: &str, more: &[&str]) -> Self {
        let mut arguments = vec!["--json", "plan", "status", plan];
        arguments.extend(more);
        let run = harness.run(&arguments).unwrap();
        Self { json: run.json().unwrap(), code: run.code }
    }

    fn count(&self, state: &str) -> u64 {
        self.json["counts"][state].as_u64().unwrap_or_else(|| panic!("no count of {state}: {}", self.json))
    }

    /// The counts that are not zero.
    fn counts(&self) -> BTreeMap<String, u64> {
        let counts: BTreeMap<String, u64> = serde_json::from_value(self.json["counts"].clone()).unwrap();
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    #[track_caller]
    fn is(&self, counts: &[(&str, u64)], code: i32) {
        let wanted: BTreeMap<_, _> = counts.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
        assert_eq!(self.counts(), wanted, "{:#}", self.json);
        assert_eq!(self.code, Some(code), "{:#}", self.json);
    }

    fn labels(&self, list: &str) -> Vec<String> {
        let list = self.json[list].as_array().unwrap_or_else(|| panic!("no {list}: {}", self.json));
        list.iter().map(|one| one["label"].as_str().unwrap().to_owned()).collect()
    }
}

fn emails(harness: &Harness) -> usize {
    harness.provider().count("email").unwrap()
}

/// One target of the campaign tool for each of so many readers.
fn readers(count: usize) -> Value {
    let one = |n: usize| json!({ "subject": "News", "body": format!("Dear reader {n}"), "recipients": [format!("reader{n}@example.com")] });
    (0..count).map(one).collect()
}

/// How many emails each reader got.
fn got(harness: &Harness) -> BTreeMap<String, usize> {
    let mut got = BTreeMap::new();
    for effect in harness.provider().effects().unwrap() {
        *got.entry(effect.object["to"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    got
}

#[track_caller]
fn everyone_once(harness: &Harness, count: usize) {
    let wanted: BTreeMap<_, _> = (0..count).map(|n| (format!("reader{n}@example.com"), 1)).collect();
    assert_eq!(got(harness), wanted);
}
