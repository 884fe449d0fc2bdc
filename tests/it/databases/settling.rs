//! Rows of a database as the source of a key.

use std::fs;

use oncegate_tests::harness::{Harness, Options};
use serde_json::{Value, json};

use super::{packed, sqlite::library};

/// A guest with the shop's answers from a database: the key is a row's.
const CONTRACT: &str = r#"
[component]
name = "acme-refunds"
effect = "keyed"
[endpoint.shop]
url = "sqlite:shop"
[endpoint.pay]
url = "https://api.pay.example"
credential = "pay"
[tool.refund]
operations = ["get-return", "create-refund"]
effects = 1
[operation.get-return]
effect = "none"
request = "SQL shop"
statement = "SELECT id, charge, amount FROM returns WHERE id = :id ORDER BY id"
fields = [ { name = "id", at = "bind:id", from = "argument:/return_id" } ]
found-when = { at = "/rows/0" }
[operation.create-refund]
effect = "keyed"
action = "refund"
request = "POST pay:/v1/refunds"
body = "form"
fields = [
  { name = "return", at = "form:metadata[return]", role = "key", from = "lookup:get-return", value = "/rows/0/id" },
  { name = "charge", at = "form:charge", role = "bound", from = "lookup:get-return", value = "/rows/0/charge" },
  { name = "amount", at = "form:amount", role = "bound", type = "integer", from = "lookup:get-return", value = "/rows/0/amount", rule = "at-most" },
  { name = "reason", at = "form:metadata[reason]", role = "generated", max = 500 },
]
reference = "form:metadata[ref]"
done-when = { status = 200, at = "/object", equals = "refund" }
receipt = "/id"
no-effect-when = [ { status = 402 } ]
"#;

#[test]
fn a_row_gives_the_key_and_its_effect_happens_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    library(
        &file,
        "CREATE TABLE returns (id TEXT, charge TEXT, amount INTEGER);
         INSERT INTO returns VALUES ('R-7', 'ch_7', 50000);",
    );
    let guest = packed(folder.path(), "shopper", "guests/shopper/wit", CONTRACT);
    let harness = Harness::with(guest, Options::default()).unwrap();
    let policy = harness.home().join("policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    let shop = format!("[endpoint.shop]\nfile = \"{}\"\n#", file.display());
    let text = text.replacen("[endpoint.shop]\nurl = ", &format!("{shop} url = "), 1);
    let text = text.replacen("account = \"shop-test\"\negress = \"direct\"\nallow-private = true\n", "", 1);
    fs::write(&policy, text).unwrap();
    let call = |id: &str, reason: &str| {
        let arguments = json!({ "return_id": id, "amount": 4200, "reason": reason });
        let run = oncegate_tests::harness::Run::of(&mut harness.call("refund", &arguments, &[])).unwrap();
        run.json().unwrap_or_else(|error| panic!("{error}"))
    };
    let first = call("R-7", "broken");
    assert_eq!(first["status"], "done", "{first:#}");
    for words in ["it arrived broken", "broken on arrival"] {
        let again = call("R-7", words);
        assert_eq!(
            (&again["status"], &again["effects"][0]["receipt"]),
            (&json!("already_done"), &first["effects"][0]["receipt"])
        );
    }
    assert_eq!(harness.provider().effects().unwrap().len(), 1);
    // No row, no key: nothing is sent, whatever the guest says.
    let none: Value = call("R-8", "broken");
    assert_ne!(none["status"], "done", "{none:#}");
    assert_eq!(harness.provider().effects().unwrap().len(), 1);
}
