//! Tools that were not written in Rust: componentize-py and jco make a component of the same refund, `pack` puts the
//! same contract in, and it is inspected, run and repeated as the one in Rust is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, Run, root};
use oncegate_tests::{mcp::npm, python};
use serde_json::Value;

use crate::agent::{call, refund};

const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";
const JCO: &str = "@bytecodealliance/jco@1.35.0";
const TOOL: &str = "issue-refund";
/// Compiling CPython takes longer than an agent waits.
const PATIENT: &str = "answer-within = \"100s\"\nwall-time = \"110s\"";

/// The folder of the example in Rust, whose contract and WIT text these share.
fn example() -> PathBuf {
    fs::canonicalize(root().join("guest-examples/refunds")).unwrap()
}

/// The tool's WIT with the one of Oncegate beneath it, as every toolchain wants it.
fn wit(folder: &Path) -> PathBuf {
    let wit = folder.join("wit");
    let deps = wit.join("deps/effect");
    fs::create_dir_all(&deps).unwrap();
    fs::copy(example().join("wit/tool.wit"), wit.join("tool.wit")).unwrap();
    for file in fs::read_dir(root().join("wit")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), deps.join(file.file_name())).unwrap();
    }
    wit
}

fn built(command: &mut Command) {
    let run = Run::of(command).unwrap();
    assert_eq!(run.code, Some(0), "{run:#?}");
}

fn from_python(folder: &Path) -> PathBuf {
    let python = python::install("venv-componentize", COMPONENTIZE_PY).unwrap();
    let component = folder.join("python.wasm");
    let mut make = Command::new(python.with_file_name("componentize-py"));
    make.arg("-d").arg(wit(folder)).args(["-w", "tool", "componentize", "--stub-wasi", "app", "-o"]).arg(&component);
    // Beside the source it would leave its compiled form.
    fs::copy(example().join("python/app.py"), folder.join("app.py")).unwrap();
    built(make.current_dir(folder));
    component
}

fn from_javascript(folder: &Path) -> PathBuf {
    let jco = npm::install("npm-jco", &[JCO]).unwrap();
    let component = folder.join("javascript.wasm");
    let mut make = Command::new(jco.join("node_modules/.bin/jco"));
    make.arg("componentize").arg(example().join("javascript/refund.js")).arg("-w").arg(wit(folder));
    make.args(["-n", "tool", "--backend", "qjs", "--backend-qjs-stub-wasi", "--backend-qjs-disable-async", "-o"]);
    built(make.arg(&component));
    component
}

fn packed(folder: &Path, component: &Path) -> Guest {
    let (contract, packed) = (example().join("contract.toml"), folder.join("packed.wasm"));
    let mut pack = Harness::new("refunds").unwrap().command();
    pack.arg("pack").arg(component).arg("--contract").arg(&contract);
    built(pack.arg("--wit").arg(example().join("wit")).arg("-o").arg(&packed));
    Guest { component: packed, contract: fs::read_to_string(contract).unwrap() }
}

/// What is granted, asked and decided is the contract's, whatever the language.
fn inspects_as_the_one_in_rust(harness: &Harness, made_with: &str) {
    let rust = Guest::example("refunds").unwrap().component;
    let page = harness.run(&["inspect", harness.component().to_str().unwrap()]).unwrap();
    assert!(page.code == Some(0) && page.stdout.contains(made_with), "{page:#?}");
    let machine = |component: &Path| -> Value {
        let run = harness.run(&["inspect", "--json", component.to_str().unwrap()]).unwrap();
        assert_eq!(run.code, Some(0), "{run:#?}");
        run.json().unwrap()
    };
    let (here, there) = (machine(harness.component()), machine(&rust));
    for part in ["effect", "tools", "operations", "statements"] {
        assert!(here[part] == there[part] && !here[part].is_null(), "{part}: {:#}\n{:#}", here[part], there[part]);
    }
    let sarif = harness.run(&["inspect", "--sarif", harness.component().to_str().unwrap()]).unwrap();
    assert!(sarif.json().unwrap()["runs"][0]["results"].is_array(), "{sarif:#?}");
}

fn refunds_once(harness: &Harness) {
    let first = call(harness, TOOL, &refund("R-1", "arrived broken"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let receipt = first.receipts()[0].to_owned();
    assert_eq!(first.json["result"]["id"], receipt, "{first:#?}");
    call(harness, TOOL, &refund("R-1", "it broke on the way"), &[]).is_replay_of(&receipt);
    assert_eq!(harness.provider().count("refund").unwrap(), 1);
}

fn goes_the_whole_path(make: impl Fn(&Path) -> PathBuf, made_with: &str) {
    let folder = tempfile::tempdir().unwrap();
    let guest = packed(folder.path(), &make(folder.path()));
    let harness = Harness::with(guest, Options { limits: PATIENT.to_owned(), ..Options::default() }).unwrap();
    inspects_as_the_one_in_rust(&harness, made_with);
    refunds_once(&harness);
}

#[test]
fn a_tool_in_python_goes_the_whole_path() {
    goes_the_whole_path(from_python, "component-init-transform");
}

#[test]
fn a_tool_in_javascript_goes_the_whole_path() {
    goes_the_whole_path(from_javascript, "wit-component");
}
