//! Files that are known by their bytes: the same ones are imported once, one changed byte is another
//! import, and what was taken out again may come back, again and again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oncegate_ledger::StateTag;
use oncegate_tests::harness::{Harness, Running};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

use crate::agent::{Heard, call, hear};
use crate::book;

pub(crate) const ROWS: &[u8] = b"id,amount\n1,10\n2,20\n";

pub(crate) fn file(owner: &str, folder: &str, name: &str, bytes: &[u8]) -> Value {
    json!({ "owner": owner, "folder": folder, "name": name, "file": STANDARD.encode(bytes) })
}

pub(crate) fn import_command(harness: &Harness, name: &str) -> Command {
    harness.call("import-file", &file("team-7", "2026", name, ROWS), &[])
}

#[track_caller]
pub(crate) fn import(harness: &Harness, name: &str) -> Heard {
    hear(&mut import_command(harness, name))
}

pub(crate) fn delete_command(harness: &Harness, id: &str) -> Command {
    harness.call("delete-dataset", &json!({ "id": id }), &[])
}

#[track_caller]
pub(crate) fn delete(harness: &Harness, id: &str) -> Heard {
    hear(&mut delete_command(harness, id))
}

/// What the store counted: imports, and deletions.
pub(crate) fn counts(harness: &Harness) -> (usize, usize) {
    let counts = harness.provider().counts().unwrap();
    (counts["dataset"], counts["deletion"])
}

/// Imports of files with this name, and of them what is there.
pub(crate) fn imports_of(harness: &Harness, name: &str) -> (usize, usize) {
    let effects = harness.provider().effects().unwrap();
    let made: Vec<&str> = effects
        .iter()
        .filter(|one| one.kind == "dataset" && one.object["name"] == name)
        .map(|one| one.id.as_str())
        .collect();
    let gone = effects.iter().filter(|one| one.kind == "deletion");
    let gone = gone.filter(|one| made.contains(&one.object["dataset"].as_str().unwrap())).count();
    (made.len(), made.len() - gone)
}

#[test]
fn the_same_bytes_are_one_import() {
    let harness = Harness::new("datasets").unwrap();
    let first = import(&harness, "sales.csv");
    assert_eq!(first.status(), "done", "{first:#?}");
    assert_eq!(first.json["result"], json!({ "id": "da_000001", "rows": 3 }), "{first:#?}");
    for run in ["run=1", "run=next-day"] {
        let again = call(&harness, "import-file", &file("team-7", "2026", "sales.csv", ROWS), &[run]);
        again.is_replay_of("da_000001");
        assert_eq!(again.json["result"], first.json["result"], "{again:#?}");
    }
    assert_eq!(counts(&harness), (1, 0));
    let stored = &harness.provider().effects().unwrap()[0];
    assert_eq!(stored.object["rows"], 3);
}

#[test]
fn one_changed_byte_is_another_import() {
    let harness = Harness::new("datasets").unwrap();
    let changed: [&[u8]; 5] = [
        b"id,amount\n1,10\n2,21\n",
        b"id,amount\n1,10\n2,20",
        b"id,amount\r\n1,10\r\n2,20\r\n",
        b"\xef\xbb\xbfid,amount\n1,10\n2,20\n",
        b"\xff\x00",
    ];
    for (n, bytes) in std::iter::once(ROWS).chain(changed).enumerate() {
        let heard = call(&harness, "import-file", &file("team-7", "2026", "sales.csv", bytes), &[]);
        assert_eq!(heard.status(), "done", "{n}: {heard:#?}");
        assert_eq!(counts(&harness), (n + 1, 0));
    }
    import(&harness, "sales.csv").is_replay_of("da_000001");
    assert_eq!(counts(&harness), (6, 0));
}

#[test]
fn owner_folder_and_name_tell_imports_apart() {
    let harness = Harness::new("datasets").unwrap();
    let places = [("team-7", "2026", "a"), ("team-8", "2026", "a"), ("team-7", "2027", "a"), ("team-7", "2026", "b")];
    for (n, (owner, folder, name)) in places.into_iter().enumerate() {
        let heard = call(&harness, "import-file", &file(owner, folder, name, ROWS), &[]);
        assert_eq!(heard.status(), "done", "{heard:#?}");
        assert_eq!(counts(&harness), (n + 1, 0));
    }
    for (n, (owner, folder, name)) in places.into_iter().enumerate() {
        let heard = call(&harness, "import-file", &file(owner, folder, name, ROWS), &[]);
        heard.is_replay_of(&format!("da_{:06}", n + 1));
    }
    assert_eq!(counts(&harness), (4, 0));
}

/// Parts cannot be shifted from one name into the next.
#[test]
fn no_two_places_are_one_key() {
    let harness = Harness::new("datasets").unwrap();
    for (owner, folder) in [("a", "bc"), ("ab", "c"), ("a/b", "c"), ("a", "b/c")] {
        let heard = call(&harness, "import-file", &file(owner, folder, "f", ROWS), &[]);
        assert_eq!(heard.status(), "done", "{heard:#?}");
    }
    assert_eq!(counts(&harness), (4, 0));
}

#[test]
fn a_deletion_makes_a_new_import_legitimate_again_and_again() {
    let harness = Harness::new("datasets").unwrap();
    for round in 1..=4 {
        let id = format!("da_{round:06}");
        let made = import(&harness, "sales.csv");
        assert_eq!((made.status(), made.receipts()), ("done", vec![&*id]), "{round}: {made:#?}");
        import(&harness, "sales.csv").is_replay_of(&id);
        assert_eq!(counts(&harness), (round, round - 1));
        let gone = delete(&harness, &id);
        assert_eq!(gone.status(), "done", "{round}: {gone:#?}");
        assert_eq!(gone.json["result"], json!(id), "{round}: {gone:#?}");
        let again = delete(&harness, &id);
        assert_eq!(again.status(), "already_done", "{round}: {again:#?}");
        assert_eq!(counts(&harness), (round, round));
    }
    let undone = book::rows(&harness).iter().filter(|row| row.state == StateTag::Undone).count();
    assert_eq!(undone, 4);
}

#[test]
fn a_crowd_imports_once() {
    let harness = Harness::new("datasets").unwrap();
    let crowd: Vec<Running> =
        (0..6).map(|_| Running::start(&mut import_command(&harness, "sales.csv")).unwrap()).collect();
    for running in crowd {
        let heard = Heard::of(&running.wait(Duration::from_secs(60)).unwrap());
        assert!(heard.is_success() && heard.receipts() == ["da_000001"], "{heard:#?}");
    }
    assert_eq!(counts(&harness), (1, 0));
}
