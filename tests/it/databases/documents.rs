//! A document database, as far as one can be had: a server of MongoDB's protocol that others wrote, behind
//! a relay that writes down every command. No MongoDB itself is run here.

use std::collections::BTreeSet;

use oncegate_tests::databases::nx::Nx;
use oncegate_tests::databases::wire::Recorder;
use serde_json::{Value, json};

use super::{Reader, contract, integer, nothing, text};

const ORDERS: &str = r#"[
    { "_id": 1, "customer": "ann", "total": { "$numberLong": "9007199254740993" }, "open": true },
    { "_id": 2, "customer": "bob", "total": 5, "lines": [{ "sku": "x" }] },
    { "_id": 3, "customer": "$where", "total": 6 }
]"#;

/// All that a lookup, and the driver's own greeting, may send.
const COMMANDS: &[&str] = &["hello", "isMaster", "ismaster", "ping", "find", "aggregate", "endSessions"];

fn policy(port: u16, lines: &str) -> String {
    format!("url = \"mongodb://127.0.0.1:{port}/shop\"\nallow-private = true\ntls = \"off\"\n{lines}")
}

#[test]
fn documents_are_found_and_only_what_the_contract_asks_is_sent() {
    let server = Nx::start().unwrap();
    server.insert("shop", "orders", ORDERS).unwrap();
    let recorder = Recorder::start(server.port()).unwrap();
    let before = server.counts("shop").unwrap();
    let by_customer = r#"request = "FIND books:orders"
filter = '{"customer": ":customer"}'
sort = '{"_id": 1}'"#;
    let at_least = r#"request = "AGGREGATE books:orders"
pipeline = '[{"$match": {"total": {"$gte": ":least"}}}, {"$project": {"customer": 1}}, {"$sort": {"_id": 1}}]'"#;
    let all = "request = \"FIND books:orders\"";
    let asked = [
        ("by-customer", by_customer, "{ name = \"customer\", at = \"bind:customer\" }"),
        ("at-least", at_least, "{ name = \"least\", at = \"bind:least\", type = \"integer\" }"),
        ("all", all, ""),
    ];
    let unchecked = policy(recorder.port(), "role-checked = false\nrows = 2");
    let reader = Reader::new(&contract("mongodb://db.example/shop", false, &asked), &unchecked);
    let found = reader.one("by-customer", text("customer", "ann"));
    assert_eq!(
        found["rows"],
        json!([{ "_id": 1, "customer": "ann", "total": 9_007_199_254_740_993_i64, "open": true }])
    );
    assert_eq!(reader.one("by-customer", text("customer", "$where"))["rows"][0]["_id"], 3);
    for hostile in [r#"{"$gt": ""}"#, "$ne", "'; return true; //", ":customer"] {
        assert_eq!(reader.one("by-customer", text("customer", hostile))["rows"], json!([]), "{hostile}");
    }
    let large = reader.one("at-least", integer("least", 6));
    assert_eq!(large["rows"].as_array().map(Vec::len), Some(2), "{large}");
    let capped = reader.one("all", nothing());
    assert_eq!((capped["rows"].as_array().map(Vec::len), &capped["truncated"]), (Some(2), &json!(true)));
    let sent: BTreeSet<String> = recorder.commands().into_iter().collect();
    assert!(sent.iter().all(|name| COMMANDS.contains(&name.as_str())), "{sent:?}");
    assert!(sent.contains("find") && sent.contains("aggregate"), "{sent:?}");
    assert_eq!(server.counts("shop").unwrap(), before);

    // Without the policy's word for it, a server that checks nobody is asked nothing for a contract.
    let count = recorder.commands().iter().filter(|name| *name == "find").count();
    reader.allow(&policy(recorder.port(), "user = \"reader\""));
    let refused = reader.run(&[("all", nothing())], false);
    assert!(refused.stdout.contains("error: "), "{refused:?}");
    assert_eq!(recorder.commands().iter().filter(|name| *name == "find").count(), count);
    // What is not encrypted goes to private addresses only, and only where the policy says both.
    reader.allow("url = \"mongodb://127.0.0.1:1/shop\"\nrole-checked = false\ntls = \"off\"");
    assert!(reader.ask(&[("all", nothing())])[0].contains("NotPermitted"));
}

#[test]
fn a_pipeline_that_writes_is_no_contract() {
    for stage in [
        r#"{"$out": "stolen"}"#,
        r#"{"$merge": {"into": "orders"}}"#,
        r#"{"$match": {"$where": "1"}}"#,
        r#"{"$project": {"a": {"$function": {"body": "f", "args": [], "lang": "js"}}}}"#,
    ] {
        let asked = format!("request = \"AGGREGATE books:orders\"\npipeline = '[{stage}]'");
        let text = contract("mongodb://db.example/shop", false, &[("a", asked.as_str(), "")]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("contract.toml");
        std::fs::write(&file, text).unwrap();
        let harness = oncegate_tests::harness::Harness::new("orders").unwrap();
        let check = harness.run(&["check", file.to_str().unwrap(), "--json"]).unwrap();
        assert_eq!(check.code, Some(1), "{stage}: {check:?}");
        let said: Value = serde_json::from_str(&check.stdout).unwrap();
        assert!(said["errors"][0]["message"].as_str().is_some_and(|text| text.contains("only read")), "{said}");
    }
}
