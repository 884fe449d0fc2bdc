//! New versions of a tool: what identifies an effect stays the same, or the tool is refused.

use std::fs;
use std::path::Path;

use oncegate_tests::harness::{Guest, Harness, Options, Run};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::agent::{Heard, call, packed, refund};

const TOOL: &str = "issue-refund";

/// The refunds tool with its first contract, and a later version that the policy knows as well.
struct Versions {
    harness: Harness,
    later: Guest,
    _folder: TempDir,
}

fn versions(change: impl Fn(&str) -> String) -> Versions {
    let first = Guest::example("refunds").unwrap();
    let changed = change(&first.contract);
    assert_ne!(changed, first.contract);
    let folder = tempfile::tempdir().unwrap();
    let later = packed(folder.path(), &changed);
    let digest: String =
        Sha256::digest(fs::read(&later.component).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "\n[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n"
    );
    let options = Options { policy, ..Options::default() };
    Versions { harness: Harness::with(first, options).unwrap(), later, _folder: folder }
}

impl Versions {
    fn call(&self, component: &Path, return_id: &str) -> Heard {
        let mut command = self.harness.command();
        command.arg("call").arg(component);
        command.args([TOOL, "--json", "--context", "tenant=acme", "--args"]);
        command.arg(refund(return_id, "by the later version").to_string());
        Heard::of(&Run::of(&mut command).unwrap())
    }

    fn refunds(&self) -> usize {
        self.harness.provider().count("refund").unwrap()
    }
}

#[test]
fn a_new_version_hears_of_what_the_old_one_did() {
    let versions = versions(|contract| contract.replace("max = 500", "max = 400"));
    let first = call(&versions.harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let later = &versions.later.component;
    versions.call(later, "R-1").is_replay_of(first.receipts()[0]);
    assert_eq!(versions.call(later, "R-2").status(), "done");
    assert_eq!(versions.refunds(), 2);
}

#[test]
fn a_version_with_other_keys_is_refused() {
    let changes = [
        // Another source, another normaliser, another name, one more part.
        ("value = \"/id\"", "value = \"/charge\""),
        ("value = \"/id\" }", "value = \"/id\", normalize = \"upper\" }"),
        ("name = \"return\"", "name = \"goods\""),
        (
            "{ name = \"charge\", at = \"form:charge\",           role = \"bound\"",
            "{ name = \"charge\", at = \"form:charge\",           role = \"key\"",
        ),
    ];
    for (old, new) in changes {
        let versions = versions(|contract| contract.replace(old, new));
        let first = call(&versions.harness, TOOL, &refund("R-1", "first"), &[]);
        assert_eq!(first.status(), "done", "{first:#?}");
        for return_id in ["R-1", "R-2"] {
            let later = versions.call(&versions.later.component, return_id);
            assert_eq!(later.status(), "refused", "{new}: {later:#?}");
            assert_eq!(later.json["code"], "recipe_changed", "{new}: {later:#?}");
        }
        assert_eq!(versions.refunds(), 1, "{new}");
    }
}

#[test]
fn a_component_that_no_policy_names_does_nothing() {
    let contract = Guest::example("refunds").unwrap().contract;
    let harness = Harness::new("refunds").unwrap();
    let unknown = packed(harness.folder(), &contract.replace("max = 500", "max = 499"));
    let mut command = harness.command();
    command.arg("call").arg(&unknown.component);
    command.args([TOOL, "--json", "--context", "tenant=acme", "--args"]);
    command.arg(refund("R-1", "unknown").to_string());
    let heard = Heard::of(&Run::of(&mut command).unwrap());
    assert_eq!(heard.json["code"], "effect_not_permitted", "{heard:#?}");
    assert_eq!(harness.provider().log().unwrap().len(), 0);
}

/// The account, the endpoint's URL and the credential's name are bound at first use.
#[test]
fn another_url_under_the_same_account_is_refused() {
    let harness = Harness::new("refunds").unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let elsewhere = Harness::new("refunds").unwrap();
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let pay = policy.find("[endpoint.pay]").unwrap();
    let moved = policy[pay..].replacen(&harness.provider_url(), &elsewhere.provider_url(), 1);
    fs::write(&file, format!("{}{moved}", &policy[..pay])).unwrap();
    let heard = call(&harness, TOOL, &refund("R-2", "second"), &[]);
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(elsewhere.provider().count("refund").unwrap(), 0, "{heard:#?}");
    // What is stored is still answered.
    let again = call(&harness, TOOL, &refund("R-1", "again"), &[]);
    again.is_replay_of(first.receipts()[0]);
}
