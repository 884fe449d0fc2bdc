//! Every input that the fuzz targets keep, tried again without libFuzzer: what was found once stays found.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use oncegate_fuzz::{TARGETS, Target, corpus};
use oncegate_tests::harness::root;

/// Bytes of all corpora together: they are read by people and copied with every clone.
const BYTES_MAX: u64 = 1 << 20;

fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(corpus(target)).unwrap().flatten();
    files.map(|file| (file.path(), fs::read(file.path()).unwrap())).collect()
}

/// Each target in a thread of its own, which has the stack of a worker of the host.
#[test]
fn every_input_that_was_kept_is_read_as_it_should_be() {
    let tried = TARGETS.iter().map(|target| {
        let inputs = inputs(target);
        assert!(inputs.len() > 2, "{} has no corpus", target.name);
        let run = target.run;
        let each = move || {
            for (path, bytes) in &inputs {
                let held = std::panic::catch_unwind(|| run(bytes));
                assert!(held.is_ok(), "{} does not hold for {}", run_name(path), path.display());
            }
        };
        std::thread::spawn(each)
    });
    for thread in tried.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
}

fn run_name(path: &std::path::Path) -> String {
    path.parent().and_then(|folder| folder.file_name()).unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn each_corpus_has_its_target_and_all_together_are_small() {
    let folder = root().join("tests/fuzz/corpus");
    let found: BTreeSet<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let named: BTreeSet<_> = TARGETS.iter().map(|target| target.name.into()).collect();
    assert_eq!(found, named);
    let bytes: u64 = TARGETS.iter().flat_map(inputs).map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(bytes < BYTES_MAX, "the corpora have {bytes} bytes");
}
