//! `oncegate ledger verify` on an export, far from the ledger: one bit, or a line that is gone, added or
//! moved, and it exits with 6.

use std::fs;
use std::path::PathBuf;

use oncegate_tests::harness::Harness;

use crate::agent::{call, refund};

/// What `verify --export` exits with for these lines.
fn verified(harness: &Harness, lines: &[u8]) -> Option<i32> {
    let file: PathBuf = harness.folder().join("export.ndjson");
    fs::write(&file, lines).unwrap();
    let run = harness.run(&["ledger", "verify", "--export", file.to_str().unwrap()]).unwrap();
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert_eq!(run.stdout.contains("damaged: "), run.code == Some(6), "{run:?}");
    run.code
}

#[test]
fn a_changed_export_is_found_without_its_ledger() {
    let harness = Harness::new("refunds").unwrap();
    for id in ["R-1", "R-2"] {
        assert_eq!(call(&harness, "issue-refund", &refund(id, "too large"), &[]).status(), "done");
    }
    let export = harness.run(&["ledger", "export"]).unwrap();
    assert_eq!(export.code, Some(0), "{export:?}");
    let sound = export.stdout.into_bytes();
    // Nothing of the ledger is asked.
    fs::rename(harness.home().join("ledger.redb"), harness.folder().join("away.redb")).unwrap();
    assert_eq!(verified(&harness, &sound), Some(0));
    let lines: Vec<&[u8]> = sound.split_inclusive(|byte| *byte == b'\n').collect();
    let middle = lines.len() / 2;
    for bit in [0, 3, 6] {
        let mut flipped = sound.clone();
        flipped[sound.len() * (bit + 1) / 8] ^= 1 << bit;
        assert_eq!(verified(&harness, &flipped), Some(6), "bit {bit} was flipped");
    }
    let mut gone = lines.clone();
    gone.remove(middle);
    assert_eq!(verified(&harness, &gone.concat()), Some(6), "a line is gone");
    let mut added = lines.clone();
    added.insert(middle, lines[middle - 1]);
    assert_eq!(verified(&harness, &added.concat()), Some(6), "a line was added");
    let mut moved = lines.clone();
    moved.swap(middle, middle - 1);
    assert_eq!(verified(&harness, &moved.concat()), Some(6), "two lines changed places");
    let cut = &lines[..lines.len() - 1];
    assert_eq!(verified(&harness, &cut.concat()), Some(6), "the end is gone");
}
