//! The JSON Schema of policies: whatever the program writes and takes is valid by it, judged by a
//! validator that we did not write; what the program refuses for its keys is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, Run, root};
use oncegate_tests::python;

const PACKAGE: &str = "jsonschema==4.25.1";
const JUDGE: &str = r#"
import json, sys, tomllib
from jsonschema import Draft7Validator
schema = json.load(open(sys.argv[1]))
Draft7Validator.check_schema(schema)
judge = Draft7Validator(schema)
print(json.dumps([[e.message for e in judge.iter_errors(tomllib.load(open(f, "rb")))] for f in sys.argv[2:]]))
"#;

/// What is wrong with each file.
fn judged(schema: &Path, files: &[PathBuf]) -> Vec<Vec<String>> {
    let python = python::install("venv-jsonschema", PACKAGE).unwrap();
    let run = Run::of(Command::new(python).args(["-c", JUDGE]).arg(schema).args(files)).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    serde_json::from_value(run.json().unwrap()).unwrap()
}

fn schema(harness: &Harness) -> PathBuf {
    let run = harness.run(&["policy", "schema"]).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let file = harness.folder().join("policy.schema.json");
    fs::write(&file, run.stdout).unwrap();
    file
}

/// A policy that uses every table.
const ALL: &str = r#"
[[component]]
signer = "acme"
lineage = "acme-refunds"
tenants = ["acme"]
grant = ["create-refund"]
requires = ["plan", "permit"]
read-answers = true
[signer.acme]
key = ["RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"]
[endpoint.pay]
url = "https://api.pay.example"
account = "main"
egress = "direct"
account-is = { operation = "whoami", at = "/id" }
[credential.pay]
from = "keyring:secret-service:pay/main"
attach = "header:Authorization"
format = "Bearer {secret}"
[context]
trigger = ["meta", "header", "serve"]
[limits]
memory = "64MiB"
response = 2048
effects = 10
[retention]
replay-window = "90d"
[[approve]]
operation = "create-refund"
when = { field = "amount", above = "99.50" }
by = ["alice"]
[[exclusive]]
name = "goods"
operations = ["create-refund", "store-credit"]
by = { create-refund = "return", store-credit = ["goods"] }
"#;

#[test]
fn every_policy_of_ours_is_valid_by_the_schema() {
    let harness = Harness::new("refunds").unwrap();
    let schema = schema(&harness);
    let mut files = vec![harness.home().join("policy.toml")];
    let put = |name: String, text: &str| {
        let file = harness.folder().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    for name in ["campaign", "datasets", "notes", "orders", "posts", "refunds"] {
        let guest = Guest::example(name).unwrap();
        let run = harness.run(&["policy", "init", &guest.component.display().to_string()]).unwrap();
        assert!(run.stdout.starts_with("#:schema "), "{}", run.stdout);
        let lines = run.stdout.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
        let file = put(format!("{name}.toml"), &lines.collect::<Vec<_>>().join("\n"));
        files.push(file);
        files.push(
            Harness::with(guest, Options::default())
                .map(|other| put(format!("{name}-full.toml"), &policy(&other)))
                .unwrap(),
        );
    }
    files.push(put("all.toml".to_owned(), ALL));
    for page in ["README.md", "host/ARCHITECTURE.md", "host/SERVE.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let policies = text.split("```toml\n").skip(1).filter_map(|block| block.split("```").next());
        for (number, block) in policies.filter(|block| block.contains("[[component]]")).enumerate() {
            files.push(put(format!("{}-{number}.toml", page.replace('/', "-")), block));
        }
    }
    for (file, wrong) in files.iter().zip(judged(&schema, &files)) {
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
        // What is valid is taken by the program too.
        let check = harness.run(&["policy", "check", "--policy", &file.display().to_string()]).unwrap();
        assert_eq!(check.code, Some(0), "{}: {}", file.display(), check.stderr);
    }
}

fn policy(harness: &Harness) -> String {
    fs::read_to_string(harness.home().join("policy.toml")).unwrap()
}

#[test]
fn what_the_program_refuses_an_editor_marks() {
    let harness = Harness::new("refunds").unwrap();
    let schema = schema(&harness);
    let changes = [
        ("signer = \"acme\"\n", "signers = \"acme\"\n"),
        ("tenants = [\"acme\"]\n", ""),
        ("tenants = [\"acme\"]", "tenants = \"acme\""),
        ("tenants = [\"acme\"]", "tenants = [\"*\"]"),
        ("key = [\"RWQ", "key = [\"XXX"),
        ("egress = \"direct\"", "egress = \"maybe\""),
        ("https://api", "ftp://api"),
        ("keyring:secret-service:pay/main", "vault:pay"),
        ("header:Authorization", "query:key"),
        ("{secret}", "secret"),
        ("\"serve\"]", "\"model\"]"),
        ("\"64MiB\"", "\"64 parsecs\""),
        ("effects = 10", "effects = -1"),
        ("\"90d\"", "\"for ever\""),
        ("[retention]", "[retentions]"),
        ("field = \"amount\"", "fields = \"amount\""),
        ("name = \"goods\"\n", ""),
    ];
    let files: Vec<PathBuf> = changes
        .iter()
        .enumerate()
        .map(|(number, (from, to))| {
            assert!(ALL.contains(from), "{from}");
            let file = harness.folder().join(format!("wrong-{number}.toml"));
            fs::write(&file, ALL.replacen(from, to, 1)).unwrap();
            file
        })
        .collect();
    for ((file, wrong), (_, to)) in files.iter().zip(judged(&schema, &files)).zip(changes) {
        assert!(!wrong.is_empty(), "{to:?} passes the schema");
        let check = harness.run(&["policy", "check", "--policy", &file.display().to_string()]).unwrap();
        assert_eq!(check.code, Some(1), "{to:?} passes the program");
    }
}
