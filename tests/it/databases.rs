//! Lookups in databases, judged by the servers themselves: what they answered, what they refused, and
//! what is in them afterwards.

mod documents;
mod mariadb;
mod postgres;
mod settling;
mod sqlite;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oncegate_tests::harness::{Guest, Harness, Options, Run, TENANT};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The password of every login that a policy names. It must never be seen again.
pub(crate) const PASSWORD: &str = "pw-Zq7_never_shown";

/// One call asks many questions, on a machine that does much else.
const LIMITS: &str = "answer-within = \"100s\"\nwall-time = \"100s\"\n";

/// One operation of a test's contract: name, what is asked, fields.
pub(crate) type Asked<'a> = (&'a str, &'a str, &'a str);

/// A component that only reads, and a policy that lets it ask one database.
pub(crate) struct Reader {
    harness: Harness,
    _folder: TempDir,
}

/// A contract that asks the endpoint `books`.
pub(crate) fn contract(url: &str, credential: bool, asked: &[Asked<'_>]) -> String {
    let credential = if credential { "credential = \"books\"\n" } else { "" };
    let names: Vec<String> = asked.iter().map(|(name, ..)| format!("\"{name}\"")).collect();
    let mut text = format!(
        "[component]\nname = \"books\"\neffect = \"none\"\n[endpoint.books]\nurl = \"{url}\"\n{credential}\
         [tool.ask]\noperations = [{}]\n",
        names.join(", ")
    );
    for (name, asked, fields) in asked {
        text.push_str(&format!("[operation.{name}]\neffect = \"none\"\n{asked}\nfields = [{fields}]\n"));
    }
    text
}

/// What a request by SQL is in a contract.
pub(crate) fn sql(statement: &str) -> String {
    format!("request = \"SQL books\"\nstatement = '''{statement}'''")
}

/// A guest of `tests/guests` with a contract, packed by the program.
pub(crate) fn packed(folder: &Path, bare: &str, wit: &str, contract: &str) -> Guest {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let bare = Guest::example("refunds").unwrap().component.with_file_name(format!("{bare}.wasm"));
    let (file, component) = (folder.join("contract.toml"), folder.join("packed.wasm"));
    fs::write(&file, contract).unwrap();
    let mut pack = Harness::new("orders").unwrap().command();
    pack.arg("pack").arg(bare).arg("--contract").arg(file);
    pack.arg("--wit").arg(root.join(wit)).arg("-o").arg(&component);
    let run = Run::of(&mut pack).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    Guest { component, contract: contract.to_owned() }
}

impl Reader {
    /// Packs the contract and writes the lines about its endpoint into the policy.
    pub(crate) fn new(contract: &str, endpoint: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let guest = packed(folder.path(), "books", "guests/books/wit", contract);
        let secrets = BTreeMap::from([("books".to_owned(), PASSWORD.to_owned())]);
        let harness = Harness::with(guest, Options { secrets, ..Options::default() }).unwrap();
        let reader = Self { harness, _folder: folder };
        reader.allow(endpoint);
        reader
    }

    /// Another policy about the endpoint from now on.
    pub(crate) fn allow(&self, endpoint: &str) {
        let file = self.harness.home().join("policy.toml");
        let text = fs::read_to_string(&file).unwrap();
        let (grant, _) = text.split_once("\n[endpoint.").unwrap();
        fs::write(&file, format!("{grant}\n[endpoint.books]\n{endpoint}\n\n[limits]\n{LIMITS}")).unwrap();
    }

    /// Asks each in turn, in one call: bodies, or `error: ` and why.
    pub(crate) fn ask(&self, questions: &[(&str, Value)]) -> Vec<String> {
        let run = self.run(questions, false);
        let json = run.json().unwrap();
        assert_eq!(json["status"], "done", "{json:#}\n{}", run.stderr);
        let answers = json["result"].as_array().unwrap_or_else(|| panic!("{json:#}"));
        answers.iter().map(|answer| answer.as_str().unwrap().to_owned()).collect()
    }

    /// The one answer as JSON.
    pub(crate) fn one(&self, operation: &str, fields: Value) -> Value {
        let answers = self.ask(&[(operation, fields)]);
        serde_json::from_str(&answers[0]).unwrap_or_else(|_| panic!("{}", answers[0]))
    }

    pub(crate) fn run(&self, questions: &[(&str, Value)], loud: bool) -> Run {
        let questions = questions.iter().map(|(operation, fields)| json!({ "operation": operation, "fields": fields }));
        let arguments = json!({ "questions": questions.collect::<Vec<_>>() });
        let file = self.harness.folder().join("arguments.json");
        fs::write(&file, arguments.to_string()).unwrap();
        let mut command = self.harness.command();
        if loud {
            command.arg("-vvv");
        }
        command.arg("call").arg(self.harness.component()).args(["ask", "--json"]);
        command.arg("--args").arg(format!("@{}", file.display()));
        command.args(["--context", &format!("tenant={TENANT}")]);
        let run = Run::of(&mut command).unwrap();
        self.never_shows(&run);
        run
    }

    /// Runs another command of the program here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Run {
        let run = self.harness.run(arguments).unwrap();
        self.never_shows(&run);
        run
    }

    pub(crate) fn component(&self) -> String {
        self.harness.component().display().to_string()
    }

    fn never_shows(&self, run: &Run) {
        assert!(!run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD), "{}\n{}", run.stdout, run.stderr);
    }

    /// Nothing in the data directory holds the password.
    pub(crate) fn keeps_no_password(&self) {
        let mut open = vec![self.harness.home()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(bytes) = fs::read(&path) {
                    let found = memchr::memmem::find(&bytes, PASSWORD.as_bytes());
                    assert!(found.is_none(), "{} holds the password", path.display());
                }
            }
        }
    }
}

pub(crate) fn text(name: &str, value: &str) -> Value {
    json!([{ "name": name, "value": { "text": value } }])
}

pub(crate) fn integer(name: &str, value: i64) -> Value {
    json!([{ "name": name, "value": { "integer": value } }])
}

pub(crate) fn nothing() -> Value {
    json!([])
}

/// Texts that would be something else if they were written and not bound.
pub(crate) const INJECTIONS: &[&str] = &[
    "' OR '1'='1",
    "'; DELETE FROM books; --",
    "\\'; DELETE FROM books; #",
    "\" OR \"\"=\"",
    "1); DROP TABLE books; --",
    "$1",
    ":title",
    "?",
    "%",
    "\u{2019} OR 1=1",
    "x' UNION SELECT secret FROM vault --",
];

/// Asks every question and holds each answer against what the server must have said.
pub(crate) fn all_refused(reader: &Reader, asked: &[(&str, &[&str])]) {
    let questions: Vec<(&str, Value)> = asked.iter().map(|(name, _)| (*name, nothing())).collect();
    let answers = reader.ask(&questions);
    for ((name, codes), answer) in asked.iter().zip(answers) {
        let said = codes.iter().any(|code| answer.starts_with("error: ") && answer.contains(code));
        assert!(said, "{name}: expected one of {codes:?}, heard {answer}");
    }
}

/// What is said of a statement that has no columns by the server's own description.
pub(crate) const NO_ROWS: &str = "gives no rows";
