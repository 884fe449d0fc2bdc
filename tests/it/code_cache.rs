//! Compiled code on disk: whoever can change it must not run anything by it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use oncegate_tests::harness::{Guest, Harness, Run};

use crate::agent::{call, refund};

const TOOL: &str = "issue-refund";

/// The files of compiled code, by the digest that their names begin with.
fn compiled(harness: &Harness) -> Vec<PathBuf> {
    let entries = fs::read_dir(harness.home().join("cache")).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect();
    files.sort();
    files
}

/// Loads another tool, so that its code is kept as well.
fn other(harness: &Harness) -> Run {
    let notes = Guest::example("notes").unwrap().component.display().to_string();
    harness.run(&["call", &notes, "no-such-tool", "--args", "{}"]).unwrap()
}

#[test]
fn code_that_is_not_what_was_compiled_here_is_compiled_again() {
    let harness = Harness::new("refunds").unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-1001", "broken"), &[]).status(), "done");
    let own = compiled(&harness);
    assert_eq!(own.len(), 1, "{own:?}");
    other(&harness);
    let both = compiled(&harness);
    assert_eq!(both.len(), 2, "{both:?}");
    let foreign = both.iter().find(|path| **path != own[0]).unwrap();
    let (mine, theirs) = (fs::read(&own[0]).unwrap(), fs::read(foreign).unwrap());
    let flipped = [&mine[..mine.len() / 2], &[mine[mine.len() / 2] ^ 1], &mine[mine.len() / 2 + 1..]].concat();
    let wrong = [
        ("another component's", theirs.clone()),
        ("cut off", mine[..mine.len() / 2].to_vec()),
        ("cut within its code", mine[..16].to_vec()),
        ("empty", Vec::new()),
        ("flipped", flipped),
        ("without its code", mine[32..].to_vec()),
    ];
    for (number, (what, bytes)) in wrong.into_iter().enumerate() {
        fs::write(&own[0], bytes).unwrap();
        let heard = call(&harness, TOOL, &refund(&format!("R-{}", 2000 + number), "broken"), &[]);
        assert_eq!(heard.status(), "done", "{what}: {heard:#?}");
        assert_eq!(fs::read(&own[0]).unwrap(), mine, "{what}: it was not compiled again");
    }
    // That of another engine has another name, and is of no use under this one.
    let name = own[0].file_name().unwrap().to_string_lossy().into_owned();
    let (digest, _) = name.split_once('-').unwrap();
    fs::rename(&own[0], own[0].with_file_name(format!("{digest}-0000000000000000.cwasm"))).unwrap();
    fs::copy(own[0].with_file_name(format!("{digest}-0000000000000000.cwasm")), &own[0]).unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-3001", "broken"), &[]).status(), "done");
    // Nobody else reads it.
    for file in compiled(&harness).iter().filter(|path| !path.to_string_lossy().contains("0000000000000000")) {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(harness.provider().count("refund").unwrap(), 8);
}

#[test]
fn a_folder_of_code_that_others_can_write_is_not_used() {
    let harness = Harness::new("refunds").unwrap();
    let cache = harness.home().join("cache");
    fs::create_dir(&cache).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&cache, fs::Permissions::from_mode(mode)).unwrap();
        let run = Run::of(&mut harness.call(TOOL, &refund("R-1001", "broken"), &[])).unwrap();
        assert_eq!(run.code, Some(1), "{}", run.stdout);
        assert!(run.stderr.contains("can be written by others"), "{}", run.stderr);
    }
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
}
