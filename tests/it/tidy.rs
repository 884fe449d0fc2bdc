//! Style that a reader relies on: small rooms, a sentence at each door, dependencies one way.

use std::fs;
use std::path::{Path, PathBuf};

use oncegate_tests::harness::root;

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// What each crate of the host may depend on.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("ledger", &[]),
    ("sandbox", &["oncegate-contract", "oncegate-ledger"]),
    ("oncegate", &["oncegate-contract", "oncegate-ledger", "oncegate-sandbox"]),
];

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["host", "tests", "xtask", "guest-examples"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 100, "only {} files were looked at", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

/// The part of a file before its tests.
fn untested(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

fn is_test(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("/tests/") || text.ends_with("tests.rs") || text.contains("_tests")
}

#[test]
fn every_file_says_what_lives_there_and_is_no_longer_than_it_may_be() {
    for (path, text) in sources() {
        assert!(text.starts_with("//! "), "{} does not open with a `//!` sentence", path.display());
        assert!(path.file_name().is_some_and(|name| name != "mod.rs"), "{}: use x.rs and x/", path.display());
        let lines = untested(&text).lines().count();
        assert!(is_test(&path) || lines <= FILE_LINES_MAX, "{} has {lines} lines", path.display());
    }
}

#[test]
fn no_function_is_longer_than_a_screen() {
    for (path, text) in sources() {
        for (line, length) in functions(&text) {
            assert!(length <= FUNCTION_LINES_MAX, "{}:{line}: a function of {length} lines", path.display());
        }
    }
}

/// Line and length of each function, by the indentation that rustfmt gives its closing brace.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let words = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "async fn ", "pub async fn "];
        if !words.iter().any(|word| code.starts_with(word)) && !code.starts_with("pub(crate) async fn ") {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let length = lines[at..].iter().position(|line| *line == end || (line.ends_with(';') && *line == lines[at]));
        found.push((at + 1, length.map_or(0, |length| length + 1)));
    }
    found
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TODO", "FIXME", concat!("todo", "!("), concat!("unimplemented", "!(")];
    for (path, text) in sources().into_iter().filter(|(path, _)| !path.ends_with("tidy.rs")) {
        for word in words {
            assert!(!text.contains(word), "{} holds {word}", path.display());
        }
    }
}

#[test]
fn dependencies_of_the_host_run_one_way() {
    for (name, allowed) in DEPENDENCIES {
        let manifest = fs::read_to_string(root().join("host").join(name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let ours = dependencies.keys().filter(|name| name.starts_with("oncegate"));
        for dependency in ours {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
        let anyhow = dependencies.contains_key("anyhow");
        assert_eq!(anyhow, *name == "oncegate", "{name}: anyhow is for the program alone");
        let engine = dependencies.contains_key("wasmtime");
        assert_eq!(engine, *name == "sandbox", "{name}: only the sandbox knows the engine");
    }
}

#[test]
fn the_architecture_fits_on_a_few_pages() {
    let text = fs::read_to_string(root().join("host/ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() < 150);
}

/// A claim of SECURITY.md rests on tests that exist.
#[test]
fn every_test_that_the_threat_model_names_exists() {
    tests_that_are_named_exist("SECURITY.md", 30);
}

#[test]
fn every_test_that_stands_beside_what_others_did_exists() {
    tests_that_are_named_exist("tests/hostile/PEERS.md", 10);
}

fn tests_that_are_named_exist(file: &str, least: usize) {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect();
    let named: Vec<&str> =
        named.into_iter().filter(|code| !["FILE::NAME", "ErrorCode::HttpRequestDenied"].contains(code)).collect();
    assert!(named.len() > least, "{named:?}");
    for test in named {
        let (folders, path) = match test.split_once(' ') {
            Some((of, path)) => {
                let host = root().join("host").join(of.trim_start_matches("oncegate-"));
                (vec![host.join("src"), host.join("tests/it")], path)
            }
            None => (vec![root().join("tests/it")], test),
        };
        let (module, name) = path.rsplit_once("::").unwrap();
        let files = folders.iter().map(|folder| folder.join(format!("{}.rs", module.replace("::", "/"))));
        let found = files.filter_map(|file| fs::read_to_string(file).ok()).any(|text| has_test(&text, name));
        assert!(found, "{file} names {test}, and there is no such test");
    }
}

fn has_test(text: &str, name: &str) -> bool {
    let (before, _) = match text.split_once(&format!("fn {name}(")) {
        Some(parts) => parts,
        None => return false,
    };
    let attributes = before.rsplit_once("\n\n").map_or(before, |(_, attributes)| attributes);
    attributes.contains("#[test]") || attributes.contains("#[tokio::test]")
}
