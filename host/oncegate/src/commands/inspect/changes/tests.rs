//! Each way to widen a contract is noticed, and narrowing one is not taken for it.

use super::*;

const BASE: &str = r#"
[component]
name = "acme-refunds"
effect = "keyed"
[endpoint.shop]
url = "https://shop.example"
[endpoint.pay]
url = "https://api.pay.example"
credential = "pay"
[tool.issue-refund]
operations = ["get-return", "create-refund"]
effects = 1
[operation.get-return]
effect = "none"
request = "GET shop:/returns/{id}"
fields = [ { name = "id", at = "path:id", from = "argument:/return_id" } ]
found-when = { status = 200 }
[operation.create-refund]
effect = "keyed"
action = "refund"
request = "POST pay:/v1/refunds"
body = "form"
fields = [
  { name = "return", at = "form:metadata[return]", role = "key", from = "lookup:get-return", value = "/id" },
  { name = "amount", at = "form:amount", type = "integer", from = "lookup:get-return", value = "/amount" },
  { name = "test", at = "form:test", from = "const", value = "yes" },
  { name = "reason", at = "form:metadata[reason]", role = "generated", max = 500 },
]
reference = "form:metadata[ref]"
done-when = { status = 200, at = "/object", equals = "refund" }
receipt = "/id"
no-effect-when = [ { status = 402 } ]
  [operation.create-refund.provider]
  dedupe = "key-and-body"
  dedupe-at = "header:Idempotency-Key"
  dedupe-window = "24h"
  dedupe-scope = "credential"
  [operation.create-refund.settle]
  operation = "find-refund"
  with = { return = "return" }
  each = "/data"
  receipt = "/id"
  must-equal = { amount = "/amount" }
  absent-after = "90s"
[operation.find-refund]
effect = "none"
request = "GET pay:/v1/refunds"
fields = [ { name = "return", at = "query:return" } ]
"#;

fn parse(text: &str) -> Contract {
    Contract::parse("c.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The changes when `from` becomes `to` in the base contract.
fn when(from: &str, to: &str) -> Vec<Change> {
    assert!(BASE.contains(from), "{from}");
    let mut log = Log::default();
    contracts(&mut log, &parse(BASE), &parse(&BASE.replacen(from, to, 1)));
    log.0
}

fn back(from: &str, to: &str) -> Vec<Change> {
    let mut log = Log::default();
    contracts(&mut log, &parse(&BASE.replacen(from, to, 1)), &parse(BASE));
    log.0
}

#[test]
fn nothing_changed() {
    assert_eq!(when("[component]", "# another comment\n[component]"), []);
}

#[test]
fn what_widens_is_noticed_and_the_reverse_narrows() {
    let cases = [
        ("max = 500", "max = 501", "operation.create-refund.fields.reason.max"),
        (", max = 500", "", "operation.create-refund.fields.reason.max"),
        (
            "value = \"/amount\" }",
            "value = \"/amount\", rule = \"at-most\" }",
            "operation.create-refund.fields.amount.rule",
        ),
        ("[ { status = 402 } ]", "[ { status = 402 }, { status = 409 } ]", "operation.create-refund.no-effect-when"),
        ("\"24h\"", "\"48h\"", "operation.create-refund.provider.dedupe-window"),
        (
            "dedupe-scope = \"credential\"",
            "dedupe-scope = \"account\"",
            "operation.create-refund.provider.dedupe-scope",
        ),
        ("absent-after = \"90s\"", "absent-after = \"30s\"", "operation.create-refund.settle.absent-after"),
        ("must-equal = { amount = \"/amount\" }", "", "operation.create-refund.settle.must-equal"),
        ("reference = \"form:metadata[ref]\"\n", "", "operation.create-refund.reference"),
        ("found-when = { status = 200 }", "", "operation.get-return.found-when"),
        (
            "receipt = \"/id\"\nno-effect-when",
            "headers = [\"x-request-id\"]\nreceipt = \"/id\"\nno-effect-when",
            "operation.create-refund.headers",
        ),
    ];
    for (from, to, at) in cases {
        let wider = when(from, to);
        assert!(wider.iter().any(|change| change.way == Way::More && change.at == at), "{from} → {to}: {wider:?}");
        let narrower = back(from, to);
        assert!(!does_more(&narrower) && !narrower.is_empty(), "{to} → {from}: {narrower:?}");
    }
}

#[test]
fn what_is_merely_other_counts_as_more() {
    let cases = [
        ("https://api.pay.example", "https://api.other.example", "endpoint.pay.url"),
        ("credential = \"pay\"", "credential = \"bank\"", "endpoint.pay.credential"),
        ("POST pay:/v1/refunds", "POST pay:/v1/payouts", "operation.create-refund.request"),
        ("POST pay:/v1/refunds", "PUT pay:/v1/refunds", "operation.create-refund.request"),
        ("at = \"form:amount\"", "at = \"form:total\"", "operation.create-refund.fields.amount.at"),
        ("name = \"acme-refunds\"", "name = \"acme-refund\"", "component.name"),
        ("action = \"refund\"", "action = \"payback\"", "operation.create-refund.key"),
        (
            "role = \"key\", from = \"lookup:get-return\", value = \"/id\"",
            "role = \"key\", from = \"lookup:get-return\", value = \"/number\"",
            "operation.create-refund.key",
        ),
        (
            "  { name = \"test\", at = \"form:test\", from = \"const\", value = \"yes\" },\n",
            "",
            "operation.create-refund.fields.test",
        ),
        (
            "from = \"const\", value = \"yes\"",
            "from = \"const\", value = \"no\"",
            "operation.create-refund.fields.test.from",
        ),
        ("with = { return = \"return\" }", "with = { return = \"amount\" }", "operation.create-refund.settle"),
    ];
    for (from, to, at) in cases {
        let found = when(from, to);
        assert!(found.iter().any(|change| change.way == Way::More && change.at == at), "{from} → {to}: {found:?}");
    }
}

#[test]
fn a_key_part_that_the_model_types_is_a_weaker_source() {
    let found = when(
        "role = \"key\", from = \"lookup:get-return\", value = \"/id\"",
        "role = \"key\", from = \"argument:/return_id\"",
    );
    let change = found.iter().find(|change| change.at == "operation.create-refund.fields.return.from").unwrap();
    assert_eq!(change.way, Way::More);
    assert_eq!(
        change.what,
        "a weaker source: was resolved by the lookup get-return, at /id, is TYPED BY THE MODEL: argument /return_id"
    );
    assert!(found.iter().any(|change| change.at == "operation.create-refund.key"));
}

#[test]
fn an_operation_declared_harmless_is_sent_without_the_ledger() {
    let text = "[component]\nname = \"a\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n[tool.t]\noperations = [\"o\"]\n[operation.o]\n";
    let keyed = parse(&format!(
        "{text}effect = \"keyed\"\naction = \"x\"\nrequest = \"POST e:/x\"\nbody = \"json\"\nreceipt = \"/id\"\nfields = [ {{ name = \"k\", at = \"json:/k\", role = \"key\", from = \"argument:/k\" }} ]\n"
    ));
    let none = parse(&format!(
        "{text}effect = \"none\"\nrequest = \"POST e:/x\"\nbody = \"json\"\nfields = [ {{ name = \"k\", at = \"json:/k\", from = \"argument:/k\" }} ]\n"
    ));
    for (old, new) in [(&keyed, &none), (&none, &keyed)] {
        let mut log = Log::default();
        contracts(&mut log, old, new);
        assert!(log.0.iter().any(|change| change.way == Way::More && change.at == "operation.o.effect"), "{:?}", log.0);
    }
}

#[test]
fn another_statement_can_do_more() {
    let text = |statement: &str| {
        parse(&format!(
            "[component]\nname = \"a\"\neffect = \"none\"\n[endpoint.e]\nurl = \"postgres://e.example/x\"\n[tool.t]\noperations = [\"o\"]\n\
             [operation.o]\neffect = \"none\"\nrequest = \"SQL e\"\nstatement = \"{statement}\"\n"
        ))
    };
    let mut log = Log::default();
    contracts(&mut log, &text("SELECT a FROM t"), &text("SELECT a, b FROM t"));
    assert_eq!(log.0.len(), 1);
    assert_eq!((log.0[0].way, log.0[0].at.as_str()), (Way::More, "operation.o.statement"));
    assert_eq!(log.0[0].what, "was SELECT a FROM t, is SELECT a, b FROM t");
}

#[test]
fn patch_versions_are_one_interface() {
    assert_eq!(without_patch("wasi:io/poll@0.2.6"), without_patch("wasi:io/poll@0.2.3"));
    assert_ne!(without_patch("wasi:io/poll@0.2.6"), without_patch("wasi:io/poll@0.3.0"));
    assert_eq!(without_patch("plain"), "plain");
}
