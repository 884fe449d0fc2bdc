//! Which of the objects that a lookup shows is this effect.

use oncegate_contract::{Answer, Matches, Operation, Resolved, Value, match_candidates, settle_fields};
use serde_json::{Value as Json, json};

use crate::fixtures::{CAMPAIGN, Call, NOTES, REFUNDS, answer, operation, refund_call};

const KEY: &str = "11111111-2222-8333-8444-555555555555";

struct Case {
    operation: Operation,
    lookup: Operation,
    resolved: Resolved,
}

impl Case {
    fn refund(text: &str) -> Self {
        let refund = operation(text, "create-refund");
        let resolved = refund_call().resolve(&refund).unwrap();
        Self { operation: refund, lookup: operation(text, "find-refund"), resolved }
    }

    fn judge(&self, answer: &Answer, taken: &[&str]) -> Matches {
        let taken: Vec<_> = taken.iter().map(|t| (*t).to_owned()).collect();
        match_candidates(&self.operation, &self.lookup, &self.resolved, KEY, answer, &taken)
    }

    fn data(&self, list: Json) -> Matches {
        self.judge(&answer(200, &json!({ "data": list }).to_string()), &[])
    }
}

fn candidate(id: &str, reference: &str, amount: i64) -> Json {
    json!({ "id": id, "amount": amount, "metadata": { "ref": reference, "return": "R-1001" } })
}

fn one(receipt: &str) -> Matches {
    Matches::One { receipt: receipt.into(), mismatched: Vec::new() }
}

fn undetermined(matches: &Matches) -> bool {
    matches!(matches, Matches::Undetermined { .. })
}

#[test]
fn the_lookup_is_asked_with_this_operations_values() {
    let case = Case::refund(REFUNDS);
    assert_eq!(
        settle_fields(&case.operation, &case.resolved, KEY),
        [("charge".to_owned(), Value::Text("ch_1".into()))]
    );
    let text = REFUNDS.replace("with  = { charge = \"charge\" }", "with  = { charge = \"reference\" }");
    let case = Case::refund(&text);
    assert_eq!(settle_fields(&case.operation, &case.resolved, KEY), [("charge".to_owned(), Value::Text(KEY.into()))]);
}

#[test]
fn by_reference() {
    let case = Case::refund(REFUNDS);
    let other = candidate("re_0", "another", 4200);
    assert_eq!(case.data(json!([other, candidate("re_1", KEY, 4200)])), one("re_1"));
    assert_eq!(case.data(json!([other])), Matches::Absent);
    assert_eq!(case.data(json!([])), Matches::Absent);
    let twice = json!([candidate("re_1", KEY, 4200), candidate("re_2", KEY, 4200)]);
    assert_eq!(case.data(twice), Matches::Many { receipts: vec!["re_1".into(), "re_2".into()] });
    assert_eq!(case.data(json!([candidate("re_1", KEY, 4200), candidate("re_1", KEY, 4200)])), one("re_1"));
    let wrong = case.data(json!([candidate("re_1", KEY, 1)]));
    assert_eq!(wrong, Matches::One { receipt: "re_1".into(), mismatched: vec!["amount".into()] });
}

#[test]
fn objects_of_other_rows_are_not_found() {
    let case = Case::refund(REFUNDS);
    let body = answer(200, &json!({ "data": [candidate("re_1", KEY, 4200)] }).to_string());
    assert_eq!(case.judge(&body, &["re_1"]), Matches::Absent);
    assert_eq!(case.judge(&body, &["re_2"]), one("re_1"));
}

#[test]
fn what_is_no_answer_decides_nothing() {
    let case = Case::refund(REFUNDS);
    let bodies = ["", "{}", "null", r#"{"data":{}}"#, r#"{"data":null}"#, r#"{"data":[],"data":[]}"#, "<html>"];
    for body in bodies {
        assert!(undetermined(&case.judge(&answer(200, body), &[])), "{body}");
    }
    for status in [404, 429, 500, 301] {
        assert!(undetermined(&case.judge(&answer(status, r#"{"data":[]}"#), &[])), "{status}");
    }
    let cut = Answer { complete: false, ..answer(200, r#"{"data":[]}"#) };
    assert!(undetermined(&case.judge(&cut, &[])));
    let mut nameless = candidate("x", KEY, 4200);
    nameless["id"] = Json::Null;
    assert!(undetermined(&case.data(json!([nameless]))), "it exists, but has no receipt");
}

#[test]
fn a_list_that_goes_on_is_never_absent() {
    let case = Case::refund(REFUNDS);
    for more in [
        json!({ "data": [], "has_more": true }),
        json!({ "data": [], "next_cursor": "abc" }),
        json!({ "data": [], "total": 3 }),
        json!({ "data": [], "links": { "next": "/x" } }),
    ] {
        assert!(undetermined(&case.judge(&answer(200, &more.to_string()), &[])), "{more}");
    }
    let page = json!({ "data": [candidate("re_1", KEY, 4200)], "has_more": true });
    assert_eq!(case.judge(&answer(200, &page.to_string()), &[]), one("re_1"));
    let end = json!({ "data": [], "has_more": false, "next": null, "next_cursor": "" });
    assert_eq!(case.judge(&answer(200, &end.to_string()), &[]), Matches::Absent);
    let mut linked = answer(200, r#"{"data":[]}"#);
    linked.headers.push(("Link".into(), b"<https://x>; rel=\"next\"".to_vec()));
    assert!(undetermined(&case.judge(&linked, &[])));
}

#[test]
fn by_all_key_parts_without_a_reference() {
    let case = Case::refund(&REFUNDS.replace("reference = ", "# "));
    assert_eq!(case.data(json!([candidate("re_1", "whatever", 4200)])), one("re_1"));
    let mut other = candidate("re_1", "x", 4200);
    other["metadata"]["return"] = json!("R-9");
    assert_eq!(case.data(json!([other])), Matches::Absent);
    let page = json!({ "data": [candidate("re_1", "x", 4200)], "has_more": true });
    assert!(undetermined(&case.judge(&answer(200, &page.to_string()), &[])), "its twin may be on the next page");
}

#[test]
fn key_parts_are_compared_in_their_normal_form() {
    let text = CAMPAIGN.replace("reference = ", "# ");
    let email = operation(&text, "send-email");
    let call = Call::arguments(json!({ "recipients": ["ada@example.org"] })).context("trigger", "spring");
    let resolved = call.resolve(&email).unwrap();
    let case = Case { operation: email, lookup: operation(&text, "list-emails"), resolved };
    let shown = |to: &str| case.data(json!([{ "id": "m1", "to": to, "tags": { "campaign": "spring" } }]));
    assert_eq!(shown("Ada@Example.ORG"), one("m1"));
    assert_eq!(shown("eve@example.org"), Matches::Absent);
    assert_eq!(shown("not an address"), Matches::Absent);
}

#[test]
fn effects_that_repeat_are_told_apart_by_reference_only() {
    let text = NOTES.replace("reference = ", "# ");
    let note = operation(&text, "create-note");
    let call = Call::arguments(json!({ "thread": "T" })).context("trigger", "t").context("sequence", "2");
    let resolved = call.resolve(&note).unwrap();
    let case = Case { operation: note, lookup: operation(&text, "list-notes"), resolved };
    assert!(undetermined(&case.data(json!([{ "id": "n1", "thread": "T" }]))));
}

#[test]
fn a_lookup_of_one_object() {
    let text = REFUNDS.replace("each  = \"/data\"", "# each").replace(", at = \"/data\", exists = true", "");
    let case = Case::refund(&text);
    assert_eq!(case.judge(&answer(200, &candidate("re_1", KEY, 4200).to_string()), &[]), one("re_1"));
    assert_eq!(case.judge(&answer(404, ""), &[]), Matches::Absent);
    assert!(undetermined(&case.judge(&answer(500, ""), &[])));
    assert!(undetermined(&case.judge(&Answer { complete: false, ..answer(404, "") }, &[])));
}
