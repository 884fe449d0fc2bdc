//! A secret reaches the provider and nothing else: a marker is looked for in all that the program prints
//! at its most talkative, and in every byte that it leaves on disk.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use memchr::memmem;
use oncegate_tests::harness::{Guest, Harness, Options, Run, TENANT};
use oncegate_tests::mcp::Stdio;
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use crate::agent::refund;
use crate::attacks::change_policy;

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
/// No other text holds it, and no encoding of it that a log might use.
const MARKER: &str = "sk_live_MARKER_7d1f";

fn markers() -> Vec<Vec<u8>> {
    use base64::Engine;
    let encoded = base64::prelude::BASE64_STANDARD.encode(format!("Bearer {MARKER}"));
    let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
    let numbers = MARKER.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    [MARKER.to_owned(), encoded, hex, numbers].map(String::into_bytes).to_vec()
}

/// As talkative as it can be made.
fn loud(command: &mut Command) -> &mut Command {
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full").arg("-vvv")
}

#[track_caller]
fn silent(what: &str, bytes: &[u8]) {
    for marker in markers() {
        if let Some(at) = memmem::find(bytes, &marker) {
            let around = &bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())];
            panic!("{what} holds the secret: {}", String::from_utf8_lossy(around));
        }
    }
}

#[track_caller]
fn silent_run(what: &str, run: &Run) {
    silent(&format!("{what}: stdout"), run.stdout.as_bytes());
    silent(&format!("{what}: stderr"), run.stderr.as_bytes());
}

/// Every file, also those that were deleted in between and live in a free page.
fn silent_folder(folder: &Path) -> usize {
    let mut looked_at = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            looked_at += silent_folder(&path);
        } else if path.is_file() {
            silent(&path.display().to_string(), &fs::read(&path).unwrap());
            looked_at += 1;
        }
    }
    looked_at
}

fn harness() -> Harness {
    let mut options = Options { limits: "request-deadline = \"2s\"\nidle = \"1s\"".to_owned(), ..Options::default() };
    options.secrets.insert("pay".to_owned(), MARKER.to_owned());
    Harness::with(Guest::example("refunds").unwrap(), options).unwrap()
}

/// One call, whatever comes of it.
fn called(harness: &Harness, id: &str) -> Run {
    Run::of(loud(&mut harness.call(TOOL, &refund(id, "broken"), &[]))).unwrap()
}

#[test]
fn a_secret_is_in_no_output_and_in_no_file() {
    let harness = harness();
    silent_run("a call", &called(&harness, "R-1001"));
    assert_eq!(harness.provider().count("refund").unwrap(), 1);
    // The marker does reach the provider, and would be found.
    let log = harness.provider().log().unwrap();
    assert!(log.iter().flat_map(|one| &one.headers).any(|(_, value)| value.contains(MARKER)));
    for (number, mode) in [
        Mode::CompleteThenReset,
        Mode::CompleteThenHang,
        Mode::Garbage,
        Mode::Truncated,
        Mode::Reject402,
        Mode::Error503Before,
        Mode::ResetAfterHeaders,
    ]
    .into_iter()
    .enumerate()
    {
        harness.provider().mode(mode, "POST", REFUNDS, Some(1)).unwrap();
        let what = format!("a call, {mode:?}");
        silent_run(&what, &called(&harness, &format!("R-{}", 2000 + number)));
    }
    for arguments in [
        &["ledger", "list", "--json"][..],
        &["ledger", "export"],
        &["ledger", "verify"],
        &["policy", "check"],
        &["doctor"],
        &["policy", "explain", &harness.component().display().to_string(), "create-refund"],
    ] {
        let run = Run::of(loud(harness.command().args(arguments))).unwrap();
        silent_run(&arguments.join(" "), &run);
    }
    assert!(silent_folder(&harness.home()) > 3);
}

#[test]
fn a_secret_that_cannot_be_used_is_not_quoted() {
    let harness = harness();
    // No header can carry it, whatever gives it.
    let place = harness.folder().join("secret");
    fs::write(&place, format!("{MARKER}\u{1}\n")).unwrap();
    let file = format!("file:{}", place.display());
    let command = format!("command:cat {}", place.display());
    let talkative = harness.folder().join("talkative.sh");
    fs::write(&talkative, format!("echo {MARKER} >&2; echo {MARKER}; exit 3")).unwrap();
    let failing = format!("command:sh {}", talkative.display());
    let bytes = harness.folder().join("bytes");
    fs::write(&bytes, [MARKER.as_bytes(), &[0xff]].concat()).unwrap();
    let no_text = format!("file:{}", bytes.display());
    let mut before = "env:PAY_KEY".to_owned();
    for (number, from) in [file, command, failing, no_text].into_iter().enumerate() {
        change_policy(&harness, &before, &from);
        silent_run(&from, &called(&harness, &format!("R-{}", 3000 + number)));
        let doctor = Run::of(loud(harness.command().arg("doctor"))).unwrap();
        assert!(doctor.stdout.contains("credential pay"), "{}", doctor.stdout);
        silent_run(&from, &doctor);
        before = from;
    }
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
}

#[test]
fn a_server_says_nothing_of_a_secret_while_it_reports_progress() {
    let harness = harness();
    let mut command = harness.command();
    command.arg("serve").arg(harness.component()).args(["--context", &format!("tenant={TENANT}")]);
    let mut client = Stdio::start(loud(&mut command)).unwrap();
    client.ask("logging/setLevel", &json!({ "level": "debug" })).unwrap();
    let params = json!({ "name": TOOL, "arguments": refund("R-1001", "broken"), "_meta": { "progressToken": "p" } });
    let result = client.ask("tools/call", &params).unwrap();
    silent("the result", result.to_string().as_bytes());
    harness.provider().mode(Mode::CompleteThenReset, "POST", REFUNDS, Some(1)).unwrap();
    let unknown = client.call(TOOL, &refund("R-1002", "broken")).unwrap();
    silent("the result", unknown.to_string().as_bytes());
    silent("the messages", json!(client.heard).to_string().as_bytes());
    silent_run("serve", &client.close(Duration::from_secs(60)).unwrap());
    assert_eq!(harness.provider().count("refund").unwrap(), 2);
    assert!(silent_folder(&harness.home()) > 3);
}
