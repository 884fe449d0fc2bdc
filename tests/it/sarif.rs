//! What code scanning is told of a component.

use std::fs;

use oncegate_tests::harness::{Guest, Harness};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::agent::packed;

fn sarif(arguments: &[&str]) -> (Option<i32>, Value) {
    let harness = Harness::new("refunds").unwrap();
    let run = harness.run(&[&["inspect", "--sarif"], arguments].concat()).unwrap();
    let log: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert_eq!((&log["version"], log["runs"].as_array().map(Vec::len)), (&"2.1.0".into(), Some(1)), "{log:#}");
    (run.code, log["runs"][0].clone())
}

/// Rule, level and place of each finding.
fn findings(run: &Value) -> Vec<[&str; 3]> {
    let results = run["results"].as_array().unwrap();
    let place = |result: &'_ Value| result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].is_string();
    assert!(results.iter().all(place), "{run:#}");
    results
        .iter()
        .map(|result| {
            let place = &result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
            [&result["ruleId"], &result["level"], place].map(|value| value.as_str().unwrap())
        })
        .collect()
}

#[test]
fn effects_are_notes_and_risks_are_warnings() {
    let contract = Guest::example("refunds").unwrap().contract;
    let risky = contract.replace("absent-after = \"90s\"\n", "");
    assert_ne!(risky, contract);
    let folder = tempfile::Builder::new().prefix("a folder ").tempdir().unwrap();
    let guest = packed(folder.path(), &risky);
    let path = guest.component.to_str().unwrap();
    let (code, run) = sarif(&[path]);
    assert_eq!(code, Some(0));
    let found = findings(&run);
    assert!(found.contains(&["effect", "note", "operation.create-refund"]), "{found:?}");
    assert!(found.contains(&["no-absent-after", "warning", "operation.create-refund.settle"]), "{found:?}");
    assert!(found.contains(&["only-a-person-settles", "note", "operation.create-refund"]), "{found:?}");
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(found.iter().all(|[rule, ..]| rules.iter().filter(|known| known["id"] == *rule).count() == 1), "{run:#}");
    let artifact = &run["artifacts"][0];
    let digest: String = Sha256::digest(fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(artifact["hashes"]["sha-256"], digest);
    assert_eq!(artifact["location"]["uri"], format!("file://{}", path.replace(' ', "%20")));
}

#[test]
fn what_widened_is_an_error_and_ends_with_five() {
    let harness = Harness::new("refunds").unwrap();
    let new = harness.component().to_str().unwrap();
    let contract = Guest::example("refunds").unwrap().contract;
    let stricter = contract.replace("max = 500", "max = 100");
    assert_ne!(stricter, contract);
    let folder = tempfile::tempdir().unwrap();
    let old = packed(folder.path(), &stricter);
    let old = old.component.to_str().unwrap();
    let (code, run) = sarif(&[new, "--against", old]);
    assert_eq!(code, Some(5));
    let more =
        |run: &Value| findings(run).iter().filter(|[rule, level, _]| [*rule, *level] == ["does-more", "error"]).count();
    assert_eq!(more(&run), 1, "{run:#}");
    let (code, run) = sarif(&[old, "--against", new]);
    assert_eq!((code, more(&run)), (Some(0), 0), "{run:#}");
    // The same finding has the same print, so that a closed alert stays closed.
    let again = sarif(&[old, "--against", new]).1;
    assert_eq!(run["results"], again["results"]);
}
