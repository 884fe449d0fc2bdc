//! An agent that repeats itself: calls of the built program, and what must be true of the answers.

use std::fs;
use std::path::Path;
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, Run};
use serde_json::{Value, json};

/// What an agent heard of one call.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Standard output.
    pub(crate) json: Value,
    /// The program's exit code; none after a signal.
    pub(crate) code: Option<i32>,
    /// Standard error.
    #[expect(dead_code, reason = "an assertion that fails prints it")]
    pub(crate) stderr: String,
}

impl Heard {
    /// From a program that ran to its end.
    pub(crate) fn of(run: &Run) -> Self {
        Self { json: run.json().unwrap(), code: run.code, stderr: run.stderr.clone() }
    }

    /// The status word.
    pub(crate) fn status(&self) -> &str {
        self.json["status"].as_str().unwrap_or_default()
    }

    /// True when the effect is done, by this call or before it.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.status(), "done" | "already_done")
    }

    /// The receipts, in the order of the effects.
    pub(crate) fn receipts(&self) -> Vec<&str> {
        let effects = self.json["effects"].as_array().unwrap();
        effects.iter().filter_map(|effect| effect["receipt"].as_str()).collect()
    }

    /// A repeat of what is done: a success that carries the first receipt and nothing else.
    #[track_caller]
    pub(crate) fn is_replay_of(&self, receipt: &str) {
        assert_eq!(self.status(), "already_done", "{self:#?}");
        assert_eq!(self.json["replayed"], true, "{self:#?}");
        assert_eq!(self.receipts(), [receipt], "{self:#?}");
        assert_eq!(self.code, Some(0), "{self:#?}");
    }
}

/// The arguments of `issue-refund`.
pub(crate) fn refund(return_id: &str, reason: &str) -> Value {
    json!({ "return_id": return_id, "reason": reason })
}

/// The provider's own count of refunds.
pub(crate) fn refunds(harness: &Harness) -> usize {
    harness.provider().count("refund").unwrap()
}

/// The ledger is whole.
#[track_caller]
pub(crate) fn is_sound(harness: &Harness) {
    let run = harness.run(&["ledger", "verify"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// An example guest under other limits.
pub(crate) fn with_limits(guest: &str, limits: &str) -> Harness {
    let options = Options { limits: limits.to_owned(), ..Options::default() };
    Harness::with(Guest::example(guest).unwrap(), options).unwrap()
}

/// Runs one call to its end.
#[track_caller]
pub(crate) fn call(harness: &Harness, tool: &str, arguments: &Value, context: &[&str]) -> Heard {
    hear(&mut harness.call(tool, arguments, context))
}

/// Runs a prepared command to its end.
#[track_caller]
pub(crate) fn hear(command: &mut Command) -> Heard {
    Heard::of(&Run::of(command).unwrap())
}

/// The bare refunds guest with another contract, packed by the program.
pub(crate) fn packed(folder: &Path, contract: &str) -> Guest {
    let bare = Guest::example("refunds").unwrap().component.with_file_name("refunds-bare.wasm");
    let (file, component) = (folder.join("contract.toml"), folder.join("packed.wasm"));
    fs::write(&file, contract).unwrap();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-examples/refunds/wit");
    let mut pack = Harness::new("refunds").unwrap().command();
    pack.arg("pack").arg(bare).arg("--contract").arg(file);
    pack.arg("--wit").arg(wit).arg("-o").arg(&component);
    let run = Run::of(&mut pack).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    Guest { component, contract: contract.to_owned() }
}
