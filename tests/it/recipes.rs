//! A tool that makes its keys in another way and says so: what was done under the old keys is known,
//! and of two versions at once only one sends.

use std::fs;
use std::path::Path;
use std::time::Duration;

use oncegate_tests::harness::{Guest, Harness, Options, Running};
use oncegate_tests::provider::mode::Mode;
use serde_json::json;
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, refund};
use crate::attacks::{changed, digest};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);
/// What stands behind the fields: the recipe of the first version.
const WAS: &str = "was = [ { action = \"refund\", fields = [ { name = \"return\", role = \"key\", \
                   from = \"lookup:get-return\", value = \"/id\" } ] } ]\n";

struct Versions {
    harness: Harness,
    later: Guest,
    _folder: TempDir,
}

/// The first version, and a later one whose keys are made in another way.
fn versions(changes: &[(&str, &str)]) -> Versions {
    let first = Guest::example("refunds").unwrap();
    let was = format!("reference = \"form:metadata[ref]\"\n{WAS}");
    let mut all = vec![("reference = \"form:metadata[ref]\"\n", was.as_str())];
    all.extend(changes);
    let (later, folder) = changed(&all);
    let policy = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n",
        digest(&later)
    );
    let limits = "request-deadline = \"1s\"\nidle = \"1s\"".to_owned();
    let options = Options { policy, limits, ..Options::default() };
    Versions { harness: Harness::with(first, options).unwrap(), later, _folder: folder }
}

/// Another part, another name, another action.
const CHANGES: [&[(&str, &str)]; 3] = [
    &[(
        "name = \"charge\", at = \"form:charge\",           role = \"bound\"",
        "name = \"charge\", at = \"form:charge\", role = \"key\"",
    )],
    &[("{ name = \"return\", at = \"form:metadata[return]\"", "{ name = \"goods\", at = \"form:metadata[return]\"")],
    &[("action  = \"refund\"", "action  = \"pay-back\"")],
];

impl Versions {
    fn command(&self, component: &Path, id: &str) -> std::process::Command {
        let mut command = self.harness.command();
        command.arg("call").arg(component).args([TOOL, "--json", "--context", "tenant=acme"]);
        command.args(["--args", &refund(id, "by a version").to_string()]);
        command
    }

    fn first(&self, id: &str) -> Heard {
        call(&self.harness, TOOL, &refund(id, "by the first version"), &[])
    }

    fn later(&self, id: &str) -> Heard {
        hear(&mut self.command(&self.later.component, id))
    }

    fn refunds(&self) -> usize {
        self.harness.provider().count("refund").unwrap()
    }
}

#[track_caller]
fn is_refused(heard: &Heard) {
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(heard.json["code"], "recipe_changed", "{heard:#?}");
}

#[test]
fn a_row_of_an_earlier_recipe_answers() {
    for changes in CHANGES {
        let versions = versions(changes);
        let first = versions.first("R-1");
        assert_eq!(first.receipts(), ["re_000001"], "{first:#?}");
        versions.later("R-1").is_replay_of("re_000001");
        assert_eq!(versions.refunds(), 1, "{changes:?}");
        let second = versions.later("R-2");
        assert_eq!(second.status(), "done", "{changes:?}: {second:#?}");
        versions.later("R-2").is_replay_of("re_000002");
        versions.later("R-1").is_replay_of("re_000001");
        // The first version is not asked any more, not even for what it did.
        for id in ["R-1", "R-2", "R-3"] {
            is_refused(&versions.first(id));
        }
        assert_eq!(versions.refunds(), 2, "{changes:?}");
    }
}

/// Its other values are refused as they were, and one that is unknown is settled by the later version.
#[test]
fn an_earlier_row_compares_and_settles() {
    for changes in CHANGES {
        let versions = versions(changes);
        assert_eq!(versions.first("R-1").status(), "done");
        let less = json!({ "return_id": "R-1", "reason": "x", "amount": 700 });
        let mut command = versions.harness.command();
        command.arg("call").arg(&versions.later.component).args([TOOL, "--json", "--context", "tenant=acme"]);
        command.args(["--args", &less.to_string()]);
        let other = hear(&mut command);
        assert_eq!(other.json["code"], "idempotency_key_reused", "{changes:?}: {other:#?}");
        let provider = versions.harness.provider();
        provider.mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
        provider
            .settings(&oncegate_tests::provider::domains::Settings { lists_down: true, ..Default::default() })
            .unwrap();
        assert_eq!(versions.first("R-2").status(), "pending");
        assert_eq!(versions.later("R-2").status(), "pending");
        provider.settings(&oncegate_tests::provider::domains::Settings::default()).unwrap();
        let known = versions.later("R-2");
        assert!(known.is_success(), "{known:#?}");
        assert_eq!(known.receipts(), ["re_000002"], "{known:#?}");
        assert_eq!(versions.refunds(), 2, "{changes:?}");
    }
}

/// A recipe that is not listed stays refused, and a component's own old keys are not guessed.
#[test]
fn a_recipe_that_is_not_listed_is_refused() {
    let listed = WAS.replace("value = \"/id\"", "value = \"/number\"");
    let was = format!("reference = \"form:metadata[ref]\"\n{listed}");
    let (later, _folder) = changed(&[
        ("reference = \"form:metadata[ref]\"\n", &was),
        ("action  = \"refund\"", "action  = \"refund\" # another recipe is listed"),
        ("name = \"return\", at = \"form:metadata[return]\"", "name = \"goods\", at = \"form:metadata[return]\""),
    ]);
    let harness = Harness::new("refunds").unwrap();
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let more = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n",
        digest(&later)
    );
    fs::write(&file, format!("{policy}{more}")).unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).status(), "done");
    let mut command = harness.command();
    command.arg("call").arg(&later.component).args([TOOL, "--json", "--context", "tenant=acme"]);
    command.args(["--args", &refund("R-2", "x").to_string()]);
    let heard = hear(&mut command);
    assert!(["recipe_changed", "invalid_arguments"].contains(&heard.json["code"].as_str().unwrap()), "{heard:#?}");
    assert_eq!(harness.provider().count("refund").unwrap(), 1);
}

/// Two versions at once on one return, with and without an earlier refund by the first: one refund.
#[test]
fn two_versions_at_once_make_one_refund() {
    for round in 0..12_u64 {
        let changes = CHANGES[usize::try_from(round % 3).unwrap()];
        let versions = versions(changes);
        let mut before = 0;
        if round % 2 == 0 {
            assert_eq!(versions.first("R-50").status(), "done");
            before = 1;
        }
        // A slow answer, so that each is under way while the other starts.
        versions.harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", None).unwrap();
        let first = versions.harness.component().to_owned();
        let mut order = [first.as_path(), versions.later.component.as_path()];
        if round % 4 < 2 {
            order.reverse();
        }
        let running: Vec<Running> = order
            .iter()
            .map(|component| {
                let running = Running::start(&mut versions.command(component, "R-1")).unwrap();
                std::thread::sleep(Duration::from_millis(round * 9));
                running
            })
            .collect();
        let heard: Vec<Heard> = running.into_iter().map(|one| Heard::of(&one.wait(LONG).unwrap())).collect();
        versions.harness.provider().clear().unwrap();
        assert_eq!(versions.refunds(), before + 1, "round {round}: {heard:#?}");
        let later = versions.later("R-1");
        assert!(later.is_success(), "round {round}: {later:#?}\n{heard:#?}");
        let later = versions.later("R-2");
        assert_eq!(later.status(), "done", "round {round}: {later:#?}");
        is_refused(&versions.first("R-1"));
        assert_eq!(versions.refunds(), before + 2, "round {round}: {heard:#?}");
    }
}
