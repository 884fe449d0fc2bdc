//! Bad input at every door: the answer names what is wrong, the ledger stays as it was, nothing is
//! sent. One table for each door; what happens to the ledger's own files is in `bad_ledgers`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, Run};
use serde_json::{Value, json};

use crate::book;
use crate::hostile::with_section;

const CONTRACT: &str = "oncegate:contract";
const WIT: &str = "oncegate:wit";
const ARGUMENTS: &str = r#"{"return_id":"R-1001","reason":"too large"}"#;

/// One harness, and what must not change in it.
struct Door {
    harness: Harness,
    records: usize,
}

impl Door {
    fn of(name: &str) -> Self {
        let harness = Harness::new(name).unwrap();
        let records = book::records(&harness).len();
        Self { harness, records }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.harness.folder().join(name)
    }

    fn call(&self, component: &Path, tool: &str, arguments: &str, context: &[&str]) -> Command {
        let mut command = self.harness.command();
        command.arg("call").arg(component).args([tool, "--json", "--args", arguments]);
        for fact in context {
            command.args(["--context", fact]);
        }
        command
    }

    /// Runs it and looks that nothing happened and that it says why.
    #[track_caller]
    fn refuses(&self, what: &str, command: &mut Command, codes: &[i32], says: &[&str]) -> Run {
        let run = Run::of(command).unwrap();
        let heard = format!("{}{}", run.stdout, run.stderr);
        assert!(codes.contains(&run.code.unwrap_or(-1)), "{what}: {run:?}");
        for word in says {
            assert!(heard.contains(word), "{what}: nothing of {word:?} in {heard}");
        }
        assert!(!heard.contains("panicked"), "{what}: {heard}");
        let control = heard.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{what}: text of others moves the terminal: {heard:?}");
        assert!(heard.len() < 10_000, "{what}: {} bytes", heard.len());
        assert_eq!(book::records(&self.harness).len(), self.records, "{what}");
        let log = self.harness.provider().log().unwrap();
        assert!(log.iter().all(|request| request.method == "GET"), "{what}: {log:?}");
        run
    }
}

fn example(name: &str) -> Vec<u8> {
    let guest = Guest::example("refunds").unwrap().component;
    fs::read(guest.with_file_name(format!("{name}.wasm"))).unwrap()
}

fn refunds_contract() -> String {
    Guest::example("refunds").unwrap().contract
}

fn wit(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-examples");
    fs::read_to_string(root.join(name).join("wit/tool.wit")).unwrap()
}

/// Refunds without sections of its own, with these.
fn refunds_with(contract: &str, wit: &str) -> Vec<u8> {
    let component = with_section(example("refunds-bare"), CONTRACT, contract.as_bytes());
    with_section(component, WIT, wit.as_bytes())
}

/// A component of which one import has another name of the same length.
fn renamed(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = example("refunds");
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        at += found;
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    assert!(at > 0, "no import {from}");
    bytes
}

#[test]
fn what_is_not_a_component_is_named_as_what_it_is() {
    let door = Door::of("refunds");
    let whole = example("refunds");
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("empty file", Vec::new(), &["not a WebAssembly component"]),
        ("text file", b"#!/bin/sh\necho hello\n".to_vec(), &["not a WebAssembly component"]),
        ("core module", b"\0asm\x01\0\0\0".to_vec(), &["core module", "not a WebAssembly component"]),
        ("header alone", whole[..8].to_vec(), &["component"]),
        ("three bytes", whole[..3].to_vec(), &["not a WebAssembly component"]),
        ("first half", whole[..whole.len() / 2].to_vec(), &["component"]),
        ("all but the last byte", whole[..whole.len() - 1].to_vec(), &["component"]),
        ("a future version", b"\0asm\x0e\0\x01\0".to_vec(), &["component"]),
        ("two components", [whole.clone(), whole.clone()].concat(), &["component"]),
    ];
    for (what, bytes, says) in cases {
        let file = door.file("input.wasm");
        fs::write(&file, bytes).unwrap();
        door.refuses(what, &mut door.call(&file, "issue-refund", ARGUMENTS, &[]), &[1], says);
        door.refuses(what, door.harness.command().arg("inspect").arg(&file), &[1], says);
    }
}

#[test]
fn a_file_that_cannot_be_a_component_is_not_read() {
    let door = Door::of("refunds");
    let large = door.file("large.wasm");
    fs::File::create(&large).unwrap().set_len(65 << 20).unwrap();
    let missing = door.file("missing.wasm");
    let folder = door.harness.folder();
    for (what, file, says) in [
        ("too large", large.as_path(), ["large.wasm", "bytes"]),
        ("missing", missing.as_path(), ["missing.wasm", "No such file"]),
        ("a folder", folder, [folder.to_str().unwrap(), "cannot be read"]),
    ] {
        door.refuses(what, &mut door.call(file, "issue-refund", ARGUMENTS, &[]), &[1], &says);
    }
}

#[test]
fn a_device_without_end_is_not_read() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let zero = Path::new("/dev/zero");
    let mut policy = door.call(&component, "issue-refund", ARGUMENTS, &[]);
    policy.args(["--policy", "/dev/zero"]);
    let cases = [
        ("component", door.call(zero, "issue-refund", ARGUMENTS, &[])),
        ("arguments", door.call(&component, "issue-refund", "@/dev/zero", &[])),
        ("policy", policy),
    ];
    for (what, command) in cases {
        let run = door.refuses(what, &mut with_little_memory(&command), &[1], &["/dev/zero"]);
        assert!(!run.stderr.contains("memory"), "{what}: read until {}", run.stderr);
    }
}

/// The command with so little memory that reading without end ends it soon, and nothing beside it.
fn with_little_memory(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -d 700000; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[test]
fn imports_that_the_host_does_not_offer_are_refused_by_name() {
    let door = Door::of("refunds");
    for (from, to) in [
        ("wasi:cli/environment", "wasi:sockets/network"),
        ("wasi:io/streams", "wasi:http/types"),
        ("oncegate:effect/lookup@", "oncegate:effect/l00kup@"),
        ("oncegate:effect/effect@0.1.0", "oncegate:effect/effect@0.9.0"),
        ("wasi:cli/environment", "wasi:keyvalue/stores"),
    ] {
        let file = door.file("input.wasm");
        fs::write(&file, renamed(from, to)).unwrap();
        let name = to.trim_end_matches('@');
        let mut command = door.call(&file, "issue-refund", ARGUMENTS, &[]);
        door.refuses(to, &mut command, &[1], &[name, "does not offer"]);
    }
}

#[test]
fn sections_that_contradict_are_refused_by_name() {
    let door = Door::of("refunds");
    let contract = refunds_contract();
    let twice = with_section(example("refunds"), CONTRACT, contract.as_bytes());
    let wit_twice = with_section(example("refunds"), WIT, wit("refunds").as_bytes());
    let odd = with_section(example("refunds-bare"), CONTRACT, b"\xff\xfe");
    let large = with_section(example("refunds-bare"), CONTRACT, &vec![b'#'; 300_000]);
    let no_wit = with_section(example("refunds-bare"), CONTRACT, contract.as_bytes());
    let broken = refunds_with(&contract, "package acme:refunds@0.1.0;\nworld tool { oops }");
    let of_another = refunds_with(&contract, &wit("notes"));
    let other_type = refunds_with(&contract, &wit("refunds").replace("option<s64>", "option<u64>"));
    let other_name = refunds_with(&contract, &wit("refunds").replace("reason: string", "why: string"));
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("two contracts", twice, &[CONTRACT, "2"]),
        ("two WIT texts", wit_twice, &[WIT, "2"]),
        ("contract not UTF-8", odd, &[CONTRACT, "UTF-8"]),
        ("contract too large", large, &[CONTRACT, "300000"]),
        ("no contract", example("refunds-bare"), &["no contract", "oncegate:effect/"]),
        ("broken WIT", broken, &[WIT, "oops"]),
        ("WIT of another component", of_another, &[WIT]),
        ("WIT with another type", other_type, &[WIT, "amount"]),
        ("WIT with another name", other_name, &[WIT, "why"]),
    ];
    for (what, bytes, says) in cases {
        let file = door.file("input.wasm");
        fs::write(&file, bytes).unwrap();
        door.refuses(what, &mut door.call(&file, "issue-refund", ARGUMENTS, &[]), &[1], says);
    }
    // Without WIT text there are no docs, and still a tool.
    let file = door.file("no-wit.wasm");
    fs::write(&file, no_wit).unwrap();
    let mut command = door.call(&file, "issue-refund", ARGUMENTS, &["tenant=acme"]);
    door.refuses("another digest than the policy's", &mut command, &[3], &["effect_not_permitted"]);
}

/// Contracts that are wrong: what is changed in the right one, and what the error names.
const CONTRACTS: &[(&str, &str, &[&str])] = &[
    ("[component]", "[component", &["oncegate:contract:3"]),
    ("effect = \"keyed\"\n\n[endpoint.shop]", "effect = \"some\"\n\n[endpoint.shop]", &["component.effect", "some"]),
    ("name   = \"acme-refunds\"", "nome = \"acme-refunds\"", &["component.nome"]),
    ("name   = \"acme-refunds\"", "name = \"\"", &["component.name"]),
    ("[tool.issue-refund]", "[tool.issue-money]", &["issue-money"]),
    ("\"argument:/return_id\"", "\"argument:/return_number\"", &["return_number"]),
    ("\"get-return\", \"create-refund\"]", "\"get-return\", \"make-refund\"]", &["make-refund"]),
    ("effects    = 1", "effects    = -1", &["tool.issue-refund.effects"]),
    ("POST pay:/v1/refunds", "POST bank:/v1/refunds", &["bank"]),
    ("POST pay:/v1/refunds", "BREW pay:/v1/refunds", &["BREW"]),
    ("POST pay:/v1/refunds", "POST pay:/v1/{charge}/refunds", &["path:charge"]),
    ("body    = \"form\"", "body    = \"xml\"", &["xml"]),
    ("\"form:charge\"", "\"header:Host\"", &["host"]),
    ("\"form:charge\"", "\"header:Idempotency-Key\"", &["idempotency keys"]),
    ("\"form:charge\"", "\"header:Authorization\"", &["authorization"]),
    ("\"form:charge\"", "\"header:Transfer-Encoding\"", &["transfer-encoding"]),
    ("\"form:charge\"", "\"header:a\\r\\n\\u001b[2Jb\"", &["header name"]),
    ("\"form:charge\"", "\"form:amount\"", &["amount"]),
    ("\"lookup:get-return\", value = \"/charge\"", "\"lookup:create-refund\", value = \"/charge\"", &["create-refund"]),
    ("value = \"/charge\"", "value = \"charge\"", &["charge"]),
    ("rule = \"at-most\"", "rule = \"at-least\"", &["at-least"]),
    ("role = \"generated\", max = 500", "role = \"generated\", max = \"many\"", &["max"]),
    ("with         = { charge = \"charge\" }", "with = { charge = \"invoice\" }", &["invoice"]),
    ("absent-after = \"90s\"", "absent-after = \"soon\"", &["soon"]),
    ("https://api.pay.example", "ftp://api.pay.example", &["endpoint.pay.url"]),
    ("https://api.pay.example", "https://user:secret@api.pay.example", &["url"]),
    ("receipt   = \"/id\"\nno", "receipt = \"/id\"\nreceipt = \"/id\"\nno", &["duplicate key"]),
    ("dedupe = \"none\"", "dedupe = \"sometimes\"", &["sometimes"]),
];

#[test]
fn a_contract_that_is_wrong_is_refused_with_its_line() {
    let door = Door::of("refunds");
    for (from, to, says) in CONTRACTS {
        let contract = refunds_contract();
        assert!(contract.contains(from), "{from} is not in the contract");
        let file = door.file("input.wasm");
        fs::write(&file, refunds_with(&contract.replacen(from, to, 1), &wit("refunds"))).unwrap();
        let mut command = door.call(&file, "issue-refund", ARGUMENTS, &[]);
        let run = door.refuses(to, &mut command, &[1], says);
        assert!(run.stderr.contains("oncegate:contract:"), "{to}: no line in {}", run.stderr);
    }
}

#[test]
fn a_class_that_the_operations_contradict_is_refused() {
    let door = Door::of("refunds");
    let contract = refunds_contract().replacen("effect = \"keyed\"", "effect = \"none\"", 1);
    let file = door.file("input.wasm");
    fs::write(&file, refunds_with(&contract, &wit("refunds"))).unwrap();
    let mut command = door.call(&file, "issue-refund", ARGUMENTS, &[]);
    door.refuses("none with a keyed operation", &mut command, &[1], &["create-refund"]);
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let long = json!({ "return_id": "R-1".repeat(1 << 20), "reason": "x" });
    let deep = format!("{{\"return_id\":\"R-1\",\"reason\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    let with = |name: &str, value: Value| {
        let mut arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
        arguments[name] = value;
        arguments.to_string()
    };
    let cases = [
        ("{}".to_owned(), "return_id"),
        ("[]".to_owned(), "object"),
        ("null".to_owned(), "return_id"),
        ("\"R-1\"".to_owned(), "object"),
        (json!({ "return_id": "R-1" }).to_string(), "reason"),
        (with("return_id", json!(5)), "return_id"),
        (with("return_id", Value::Null), "return_id"),
        (with("return_id", json!(["R-1"])), "return_id"),
        (with("amount", json!("many")), "amount"),
        (with("amount", json!(1.5)), "amount"),
        (with("amount", json!(true)), "amount"),
        (with("amount", json!({ "integer": 5 })), "amount"),
        (with("amount", json!("9223372036854775808")), "amount"),
        (with("amount", json!(9_223_372_036_854_775_808_u64)), "amount"),
        (with("amount", json!(1e300)), "amount"),
        (with("amout", json!(5)), "amout"),
        (with("idempotency_key", json!("k")), "idempotency_key"),
        (with("tenant", json!("other")), "tenant"),
        (with("return-id", json!("R-1")), "return-id"),
        (deep, "reason"),
    ];
    for (arguments, says) in cases {
        let mut command = door.call(&component, "issue-refund", &arguments, &["tenant=acme"]);
        door.refuses(&arguments, &mut command, &[3], &["invalid_arguments", says]);
    }
    let file = door.file("long.json");
    fs::write(&file, long.to_string()).unwrap();
    let at = format!("@{}", file.display());
    let mut command = door.call(&component, "issue-refund", &at, &["tenant=acme"]);
    door.refuses("3 MiB of identifier", &mut command, &[3], &["return_id"]);
    let log = door.harness.provider().log().unwrap();
    assert!(log.is_empty(), "{log:?}");
}

#[test]
fn arguments_that_cannot_be_read_are_no_call() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let huge = door.file("huge.json");
    fs::File::create(&huge).unwrap().set_len(9 << 20).unwrap();
    let binary = door.file("binary.json");
    fs::write(&binary, b"{\"return_id\":\"\xff\"}").unwrap();
    let at = |file: &Path| format!("@{}", file.display());
    let deep = "[".repeat(100_000);
    for (arguments, says) in [
        ("refund R-1".to_owned(), "JSON"),
        (String::new(), "JSON"),
        ("{\"return_id\":\"R-1\"".to_owned(), "JSON"),
        (deep, "JSON"),
        (at(&huge), "huge.json"),
        (at(&binary), "binary.json"),
        (at(&door.file("missing.json")), "missing.json"),
        (at(door.harness.folder()), "oncegate-"),
    ] {
        let mut command = door.call(&component, "issue-refund", &arguments, &["tenant=acme"]);
        door.refuses(&arguments[..arguments.len().min(40)], &mut command, &[1, 2], &[says]);
    }
    let mut command = door.call(&component, "issue-refundd", ARGUMENTS, &["tenant=acme"]);
    door.refuses("unknown tool", &mut command, &[3], &["invalid_arguments", "issue-refundd"]);
    let mut command = door.call(&component, "\u{1b}[2Jrun", ARGUMENTS, &["tenant=acme"]);
    let run = door.refuses("hostile tool name", &mut command, &[3], &["invalid_arguments"]);
    assert!(!run.stdout.contains('\u{1b}'), "{}", run.stdout);
}

#[test]
fn context_that_is_wrong_is_named() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let long = format!("tenant={}", "x".repeat(513));
    let cases: &[(&[&str], &[i32], &str)] = &[
        (&["tenannt=acme"], &[1, 2], "tenannt"),
        (&["=acme"], &[1, 2], "--context"),
        (&["tenant"], &[1, 2], "NAME=VALUE"),
        (&["tenant=acme", "tenant=acme"], &[1, 2], "twice"),
        (&["tenant="], &[3], "tenant"),
        (&["tenant=a\nb"], &[3], "tenant"),
        (&[&long], &[3], "tenant"),
        (&["tenant=other"], &[3], "effect_not_permitted"),
        (&["tenant=ACME"], &[3], "effect_not_permitted"),
        (&["tenant=acme "], &[3], "effect_not_permitted"),
    ];
    for (context, codes, says) in cases {
        let mut command = door.call(&component, "issue-refund", ARGUMENTS, context);
        door.refuses(&format!("{context:?}"), &mut command, codes, &[says]);
    }
}

#[test]
fn a_missing_fact_is_named() {
    let door = Door::of("notes");
    let component = door.harness.component().to_owned();
    let arguments = json!({ "thread": "T-1", "text": "hello" }).to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["tenant=acme"], "trigger"),
        (&["tenant=acme", "sequence=1"], "trigger"),
        (&["tenant=acme", "trigger=t1"], "sequence"),
    ];
    for (context, fact) in cases {
        let mut command = door.call(&component, "append-note", &arguments, context);
        door.refuses(&format!("{context:?}"), &mut command, &[3], &["context_missing", fact]);
    }
    for (sequence, code) in [("0", ""), ("-1", ""), ("one", ""), ("2", "sequence_gap"), ("18446744073709551616", "")] {
        let fact = format!("sequence={sequence}");
        let context = ["tenant=acme", "trigger=t1", &fact];
        let mut command = door.call(&component, "append-note", &arguments, &context);
        door.refuses(&fact, &mut command, &[3], &["sequence", code]);
    }
}

#[test]
fn a_tenant_among_several_has_to_be_named() {
    let guest = Guest::example("refunds").unwrap();
    let harness = Harness::with(guest, Options::default()).unwrap();
    let policy = harness.home().join("policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("tenants = [\"acme\"]", "tenants = [\"acme\", \"globex\"]")).unwrap();
    let records = book::records(&harness).len();
    let door = Door { harness, records };
    let component = door.harness.component().to_owned();
    let mut command = door.call(&component, "issue-refund", ARGUMENTS, &[]);
    door.refuses("no tenant", &mut command, &[3], &["context_missing", "tenant"]);
}

/// Policies that are wrong: what is changed in the right one, and what the error names.
const POLICIES: &[(&str, &str, &[&str])] = &[
    ("[[component]]", "[[component]", &["policy.toml:1"]),
    ("[[component]]", "[[komponent]]", &["komponent"]),
    ("tenants = [", "tenant = [", &["tenant"]),
    ("grant = [", "grants = [", &["grants"]),
    ("sha256:", "sha1:", &["digest"]),
    ("egress = \"direct\"", "egress = \"fast\"", &["egress"]),
    ("allow-private = true", "allow-private = \"yes\"", &["allow-private"]),
    ("allow-private = true", "allow-privat = true", &["allow-privat"]),
    ("url = \"http://", "url = \"gopher://", &["url"]),
    ("account = \"pay-test\"", "account = \"\"", &["account"]),
    ("from = \"env:PAY_KEY\"", "from = \"sk_live_123\"", &["from"]),
    ("attach = \"header:Authorization\"", "attach = \"header:Host\"", &["attach"]),
    ("attach = \"header:Authorization\"", "attach = \"body\"", &["attach"]),
    ("Bearer {secret}", "Bearer", &["format"]),
    ("tenant = [\"meta\"", "tenant = [\"model\"", &["context.tenant", "serve"]),
    ("trigger = [", "trigerr = [", &["trigerr"]),
    ("[limits]", "[limits]\nmemory = \"64 gigs\"", &["memory"]),
    ("[limits]", "[limits]\nmemorry = \"64MiB\"", &["memorry"]),
    ("[limits]", "[limits]\neffects = -1", &["effects"]),
    ("[limits]", "[limits]\nwall-time = \"0s\"", &["wall-time"]),
];

#[test]
fn a_policy_that_is_wrong_is_refused_with_its_line() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let policy = door.harness.home().join("policy.toml");
    let right = fs::read_to_string(&policy).unwrap();
    for (from, to, says) in POLICIES {
        assert!(right.contains(from), "{from} is not in the policy");
        fs::write(&policy, right.replacen(from, to, 1)).unwrap();
        let mut command = door.call(&component, "issue-refund", ARGUMENTS, &["tenant=acme"]);
        let run = door.refuses(to, &mut command, &[1], says);
        assert!(run.stderr.contains("policy.toml:"), "{to}: no line in {}", run.stderr);
        assert!(!run.stderr.contains("sk_live_123"), "{to}: a secret in {}", run.stderr);
    }
}

#[test]
fn a_policy_that_cannot_be_trusted_or_read_is_refused() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    let home = door.harness.home();
    let right = home.join("policy.toml");
    let open = door.file("open.toml");
    fs::copy(&right, &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    let link = door.file("link.toml");
    std::os::unix::fs::symlink(&open, &link).unwrap();
    let binary = door.file("binary.toml");
    fs::write(&binary, b"\xff\xfe").unwrap();
    let missing = door.file("missing.toml");
    for (file, says) in [
        (&open, "changed by everybody"),
        (&link, "changed by everybody"),
        (&binary, "cannot be read"),
        (&missing, "cannot be read"),
        (&home, "cannot be read"),
    ] {
        let mut command = door.call(&component, "issue-refund", ARGUMENTS, &["tenant=acme"]);
        command.arg("--policy").arg(file);
        door.refuses(says, &mut command, &[1], &[says, file.to_str().unwrap()]);
    }
    let empty = door.file("empty.toml");
    fs::write(&empty, "").unwrap();
    let mut command = door.call(&component, "issue-refund", ARGUMENTS, &["tenant=acme"]);
    command.arg("--policy").arg(&empty);
    door.refuses("a policy that grants nothing", &mut command, &[3], &["effect_not_permitted"]);
}

#[test]
fn a_secret_that_is_missing_is_named_and_stops_the_effect() {
    let door = Door::of("refunds");
    let component = door.harness.component().to_owned();
    for secret in [None, Some(""), Some("a\r\nX-Evil: 1")] {
        let mut command = door.call(&component, "issue-refund", ARGUMENTS, &["tenant=acme"]);
        match secret {
            Some(secret) => command.env("PAY_KEY", secret),
            None => command.env_remove("PAY_KEY"),
        };
        let run = Run::of(&mut command).unwrap();
        let heard = format!("{}{}", run.stdout, run.stderr);
        assert_ne!(run.code, Some(0), "{secret:?}: {heard}");
        assert_eq!(door.harness.provider().count("refund").unwrap(), 0);
        let log = door.harness.provider().log().unwrap();
        assert!(log.iter().all(|request| request.method == "GET"), "{log:?}");
        assert!(!heard.contains("X-Evil"), "{heard}");
        let status = run.status().unwrap();
        assert!(["refused", "failed"].contains(&status.as_str()), "{secret:?}: {heard}");
    }
}
