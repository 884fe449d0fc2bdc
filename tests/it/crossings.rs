//! Where two features meet: each by itself does what it should, and both at once must as well.

use std::fs;
use std::process::Command;

use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, refund, refunds};
use crate::attacks::{change_policy, changed, digest};
use crate::content_keys::{ROWS, counts, delete, file, import};

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
/// The recipe of the example as it is.
const WAS: &str = "reference = \"form:metadata[ref]\"\nwas = [ { action = \"refund\", fields = [ { name = \"return\", \
                   role = \"key\", from = \"lookup:get-return\", value = \"/id\" } ] } ]\n";
const REFERENCE: &str = "reference = \"form:metadata[ref]\"\n";
const NAME: &str = "{ name = \"return\", at = \"form:metadata[return]\"";
const SOURCE: &str = "role = \"key\",   from = \"lookup:get-return\", value = \"/id\"";

fn of_amount(id: &str, amount: u32) -> Value {
    json!({ "return_id": id, "amount": amount, "reason": "a crossing" })
}

fn refund_elsewhere(harness: &Harness, n: u32, amount: u32) {
    let body = format!("charge=ch_{n}&amount={amount}&metadata%5Breturn%5D=R-{n}");
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let (status, _) = harness.provider().send("POST", REFUNDS, &headers, body.as_bytes()).unwrap();
    assert_eq!(status, 200);
}

fn ensuring(policy: &str) -> (Harness, TempDir) {
    let (guest, folder) = changed(&[(REFERENCE, "ensure = true\n")]);
    let options = Options { policy: policy.to_owned(), ..Options::default() };
    (Harness::with(guest, options).unwrap(), folder)
}

/// The example, and a later version of it that says what its recipe was.
fn versions(change: (&str, &str), policy: &str) -> (Harness, Guest, TempDir) {
    let (later, folder) = changed(&[(REFERENCE, WAS), change]);
    let policy = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n{policy}",
        digest(&later)
    );
    let options = Options { policy, ..Options::default() };
    (Harness::with(Guest::example("refunds").unwrap(), options).unwrap(), later, folder)
}

fn by(harness: &Harness, component: &Guest, id: &str, facts: &[&str]) -> Heard {
    let mut command: Command = harness.command();
    command.arg("call").arg(&component.component).args([TOOL, "--json", "--context", "tenant=acme"]);
    command.args(["--args", &refund(id, "by a version").to_string()]);
    for fact in facts {
        command.args(["--context", fact]);
    }
    hear(&mut command)
}

/// The only row there is.
fn row(harness: &Harness) -> Value {
    let list = harness.run(&["ledger", "list", "--json"]).unwrap();
    serde_json::from_str(list.stdout.trim()).unwrap()
}

/// An operator's decision on the only row there is.
fn decide(harness: &Harness, verb: &str, how: &[&str]) -> Run {
    let row = row(harness);
    let (key, version) = (row["key"].as_str().unwrap(), row["version"].to_string());
    let what = ["ledger", verb, key, "--expect-version", &version, "--reason", "a test", "--actor", "ann"];
    harness.run(&[&what[..], how].concat()).unwrap()
}

/// A recipe whose sources alone changed gives the same keys: new effects are made, known ones answer.
#[test]
fn an_earlier_recipe_with_the_same_keys_stops_nothing() {
    let (harness, later, _folder) = versions((SOURCE, "role = \"key\", from = \"argument:/return_id\""), "");
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).receipts(), ["re_000001"]);
    by(&harness, &later, "R-1", &[]).is_replay_of("re_000001");
    let new = by(&harness, &later, "R-2", &[]);
    assert_eq!(new.status(), "done", "{new:#?}");
    by(&harness, &later, "R-2", &[]).is_replay_of("re_000002");
    assert_eq!(refunds(&harness), 2);
}

/// The later epoch of an effect that an earlier recipe identified has its purpose already.
#[test]
fn an_earlier_recipe_is_no_other_effect_with_the_purpose() {
    let claim = "\n[[exclusive]]\nname = \"compensation\"\noperations = [\"create-refund\"]\n\
                 by = { create-refund = \"charge\" }\n";
    let (harness, later, _folder) = versions((NAME, "{ name = \"goods\", at = \"form:metadata[return]\""), claim);
    assert_eq!(call(&harness, TOOL, &refund("R-1", "first"), &[]).receipts(), ["re_000001"]);
    let decided = decide(&harness, "supersede", &["--for", "run:2"]);
    assert_eq!(decided.code, Some(0), "{decided:?}");
    by(&harness, &later, "R-1", &["run=3"]).is_replay_of("re_000001");
    let again = by(&harness, &later, "R-1", &["run=2"]);
    assert_eq!((again.status(), again.receipts()), ("done", vec!["re_000002"]), "{again:#?}");
    by(&harness, &later, "R-1", &["run=2"]).is_replay_of("re_000002");
    assert_eq!(refunds(&harness), 2);
}

/// What waits for a person has other values than what was found: it is not what was found.
#[test]
fn what_is_found_while_other_values_wait_is_told_with_its_own() {
    let (harness, _folder) = ensuring("\n[[approve]]\noperation = \"create-refund\"\n");
    assert_eq!(call(&harness, TOOL, &of_amount("R-1", 100), &[]).json["detail"], "awaiting_approval");
    refund_elsewhere(&harness, 1, 200);
    call(&harness, TOOL, &of_amount("R-1", 200), &[]).is_replay_of("re_000001");
    let other = call(&harness, TOOL, &of_amount("R-1", 100), &[]);
    assert_eq!(other.json["code"], "idempotency_key_reused", "{other:#?}");
    assert_eq!(refunds(&harness), 1);
}

/// A planned effect that is found has its purpose like one that was made.
#[test]
fn a_planned_effect_that_is_found_takes_its_purpose() {
    let claim = "\n[[exclusive]]\nname = \"compensation\"\noperations = [\"create-refund\"]\n\
                 by = { create-refund = \"amount\" }\n";
    let (harness, _folder) = ensuring(claim);
    let targets = harness.folder().join("targets.json");
    fs::write(&targets, json!([of_amount("R-1", 100)]).to_string()).unwrap();
    let (component, list) = (harness.component().display().to_string(), targets.display().to_string());
    let what = ["plan", "freeze", "spring", &component, TOOL, "--targets", &list];
    let by = ["--context", "tenant=acme", "--reason", "a test", "--actor", "ann"];
    let frozen = harness.run(&[&what[..], &by].concat()).unwrap();
    assert_eq!(frozen.code, Some(0), "{frozen:?}");
    refund_elsewhere(&harness, 1, 100);
    for id in ["R-1", "R-2"] {
        call(&harness, TOOL, &of_amount(id, 100), &[]).is_replay_of("re_000001");
    }
    assert_eq!(refunds(&harness), 1);
}

/// Superseded while nobody knew: whoever the later epoch is not for hears what is found, and a person can
/// say what nobody finds.
#[test]
fn what_was_superseded_unknown_is_found_out_all_the_same() {
    for found in [true, false] {
        let limits = "request-deadline = \"1s\"\nidle = \"1s\"".to_owned();
        let options = Options { limits, ..Options::default() };
        let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
        let provider = harness.provider();
        provider.mode(Mode::CompleteThenHang, "POST", REFUNDS, Some(1)).unwrap();
        provider.settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
        let ask = |facts: &[&str]| call(&harness, TOOL, &refund("R-1", "asked"), facts);
        assert_eq!(ask(&["run=1"]).json["detail"], "unknown");
        let decided = decide(&harness, "supersede", &["--for", "run:2"]);
        assert_eq!(decided.code, Some(0), "{decided:?}");
        assert_eq!(ask(&["run=1"]).json["detail"], "unknown");
        if found {
            provider.settings(&Settings::default()).unwrap();
        } else {
            let decided = decide(&harness, "resolve", &["--as", "done", "--receipt", "re_000001"]);
            assert_eq!(decided.code, Some(0), "{decided:?}");
        }
        for _ in 0..2 {
            ask(&["run=1"]).is_replay_of("re_000001");
        }
        assert_eq!(ask(&["run=2"]).receipts(), ["re_000002"]);
        ask(&["run=1"]).is_replay_of("re_000001");
        assert_eq!(refunds(&harness), 2);
    }
}

/// After an account got another label, what was made before is still what is undone.
#[test]
fn a_renamed_account_is_still_the_one_that_things_are_undone_at() {
    let harness = Harness::new("datasets").unwrap();
    let id = import(&harness, "a").receipts()[0].to_owned();
    let key = row(&harness)["key"].as_str().unwrap().to_owned();
    let what = ["ledger", "rename", &key, "--account", "renamed", "--expect-version", "1"];
    let renamed = harness.run(&[&what[..], &["--reason", "a test", "--actor", "ann"]].concat()).unwrap();
    assert_eq!(renamed.code, Some(0), "{renamed:?}");
    change_policy(&harness, "account = \"store-test\"", "account = \"renamed\"");
    import(&harness, "a").is_replay_of(&id);
    assert_eq!(delete(&harness, &id).status(), "done");
    // It was taken back, so it may be made again.
    let again = import(&harness, "a");
    assert_eq!(again.status(), "done", "{again:#?}");
    assert_ne!(again.receipts(), [id.as_str()]);
    assert_eq!(counts(&harness), (2, 1));
}

/// What a later epoch replaced and is then taken back is not told to be there.
#[test]
fn what_was_superseded_and_is_undone_is_not_done() {
    let harness = Harness::new("datasets").unwrap();
    let id = import(&harness, "a").receipts()[0].to_owned();
    let decided = decide(&harness, "supersede", &["--for", "run:2"]);
    assert_eq!(decided.code, Some(0), "{decided:?}");
    let again = || call(&harness, "import-file", &file("team-7", "2026", "a", ROWS), &["run=2"]);
    let second = again();
    assert_eq!(second.status(), "done", "{second:#?}");
    import(&harness, "a").is_replay_of(&id);
    assert_eq!(delete(&harness, &id).status(), "done");
    let other = import(&harness, "a");
    assert_eq!((other.status(), other.json["code"].as_str()), ("refused", Some("revoked")), "{other:#?}");
    again().is_replay_of(second.receipts()[0]);
    assert_eq!(delete(&harness, &id).status(), "already_done");
    for look in [&["ledger", "verify"][..], &["ledger", "list"], &["ledger", "reconcile"]] {
        assert_eq!(harness.run(look).unwrap().code, Some(0), "{look:?}");
    }
    assert_eq!(counts(&harness), (2, 1));
}

/// Ordinals of which the one before was begun under an earlier recipe, and by a later one.
#[test]
fn an_ordinal_waits_for_what_the_later_recipe_made_of_the_one_before() {
    let sequence = format!("{REFERENCE}repeat = \"sequence\"\nscope = \"trigger\"\n");
    let (first, _first_folder) = changed(&[(REFERENCE, &sequence)]);
    let was = WAS.replace("action = \"refund\",", "action = \"refund\", repeat = \"sequence\", scope = \"trigger\",");
    let was = was.replace(REFERENCE, &sequence);
    let (later, _folder) = changed(&[(REFERENCE, &was), (NAME, "{ name = \"goods\", at = \"form:metadata[return]\"")]);
    let policy = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"acme\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n",
        digest(&later)
    );
    let harness = Harness::with(first, Options { policy, ..Options::default() }).unwrap();
    let provider = harness.provider();
    let at = |n: &str| by(&harness, &later, "R-1", &["trigger=t", &format!("sequence={n}")]);
    provider.mode(Mode::Reject402, "POST", REFUNDS, Some(1)).unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-1", "x"), &["trigger=t", "sequence=1"]).status(), "failed");
    provider.mode(Mode::Error503Before, "POST", REFUNDS, Some(1)).unwrap();
    assert_eq!(at("1").json["detail"], "unknown");
    let second = at("2");
    assert_eq!(second.json["code"], "sequence_gap", "{second:#?}");
    assert_eq!(refunds(&harness), 0);
}
