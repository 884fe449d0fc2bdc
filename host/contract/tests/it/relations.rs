//! Operations that complete or undo others: what a contract may say of them, and what answers mean.

use std::time::Duration;

use oncegate_contract::{Answer, Contract, Fetched, Value, Verdict, classify, lint};
use serde_json::json;

use crate::fixtures::{Call, POSTS, answer, contract, operation};

fn refused(from: &str, to: &str, key: &str, said: &str) {
    let text = POSTS.replacen(from, to, 1);
    assert_ne!(text, POSTS, "{from}");
    let errors = Contract::parse("c.toml", &text).expect_err(to).into_errors();
    assert!(errors.iter().any(|error| error.key == key && error.message.contains(said)), "{key}: {said}: {errors:#?}");
}

#[test]
fn the_relations_are_read_both_ways() {
    let posts = contract(POSTS);
    let (create, complete) = (&posts.operations["create-post"], &posts.operations["answer-challenge"]);
    assert_eq!(create.completed_by.as_deref(), Some("answer-challenge"));
    assert_eq!(complete.completes.as_deref(), Some("create-post"));
    assert_eq!(complete.complete_within, Some(Duration::from_secs(300)));
    assert_eq!(complete.completed_by, None);
    assert!(!create.irreversible() && complete.irreversible());
    let codes: Vec<_> = lint(&posts).into_iter().map(|lint| lint.code).collect();
    assert!(!codes.contains(&"no-complete-within") && !codes.contains(&"undoing-unnamed"), "{codes:?}");
}

#[test]
fn what_cannot_be_completed_is_refused() {
    let completes = "completes       = \"create-post\"";
    refused(completes, "completes = \"nothing\"", "operation.answer-challenge.completes", "no other keyed");
    refused(completes, "completes = \"answer-challenge\"", "operation.answer-challenge.completes", "no other keyed");
    refused(completes, "completes = \"remove-post\"", "operation.answer-challenge.completes", "never issued");
    let second = "complete-within = \"5m\"\n[operation.second]\neffect = \"keyed\"\naction = \"other\"\n\
                  request = \"POST board:/x\"\nreceipt = \"/id\"\ncompletes = \"create-post\"\n\
                  fields = [ { name = \"k\", role = \"key\", from = \"context:run\" } ]";
    // The first by name is the one; the other is told.
    refused("complete-within = \"5m\"", second, "operation.second.completes", "already");
    refused(completes, "", "operation.answer-challenge.complete-within", "goes with");
    // Without what completes it nothing can ever settle it.
    refused(completes, "", "operation.create-post.accepted-when", "completes it");
}

#[test]
fn only_what_is_completed_is_a_source() {
    let from = "from = \"lookup:create-post\", value = \"/challenge/code\"";
    let key = "operation.answer-challenge.fields[0].from";
    refused(from, "from = \"lookup:remove-post\", value = \"/challenge/code\"", key, "has an effect");
    refused(from, "from = \"lookup:answer-challenge\", value = \"/x\"", key, "has an effect");
    let other = "fields  = [{ name = \"id\", at = \"path:id\", role = \"key\", from = \"argument:/id\" }]";
    let taken = other.replace("argument:/id\"", "lookup:create-post\", value = \"/id\"");
    refused(other, &taken, "operation.remove-post.fields[0].from", "does not complete it");
}

#[test]
fn a_tool_that_completes_has_two_effects_and_both_operations() {
    let operations = "operations = [\"create-post\", \"answer-challenge\"]";
    refused(operations, "operations = [\"answer-challenge\"]", "tool.publish-post.operations", "create-post");
    refused("effects    = 2\n", "", "tool.publish-post.effects", "two effects");
    refused("effects    = 2", "effects = 1", "tool.publish-post.effects", "two effects");
}

#[test]
fn what_undoes_and_what_is_undone_name_each_other() {
    let revokes = "revokes = { operation = \"create-post\", by = \"receipt\", at = \"path:id\" }";
    refused(revokes, "", "operation.create-post.undone-by", "does not say that it revokes");
    let at = revokes.replace("path:id", "query:id");
    refused(revokes, &at, "operation.remove-post.revokes.at", "no field");
    let bound = "role = \"key\", from = \"argument:/id\" }]";
    let rest =
        "role = \"bound\", from = \"argument:/id\" },\n{ name = \"run\", role = \"key\", from = \"context:run\" }]";
    refused(bound, rest, "operation.remove-post.revokes.at", "key part");
    let text = POSTS.replacen("undone-by      = \"remove-post\"\n", "", 1);
    let codes: Vec<_> = lint(&contract(&text)).into_iter().map(|lint| (lint.code, lint.place)).collect();
    assert!(codes.contains(&("undoing-unnamed", "operation.remove-post.revokes".into())), "{codes:?}");
    let text = POSTS.replacen("complete-within = \"5m\"\n", "", 1);
    let codes: Vec<_> = lint(&contract(&text)).into_iter().map(|lint| lint.code).collect();
    assert!(codes.contains(&"no-complete-within"), "{codes:?}");
}

#[test]
fn fields_come_from_the_answer_that_is_completed() {
    let complete = operation(POSTS, "answer-challenge");
    let body = json!({ "id": "po_1", "challenge": { "code": "vc_1" } });
    let call = Call::default().give("answer", Value::Integer(28));
    assert!(call.resolve(&complete).is_err());
    let mut call = call;
    call.lookups.push(Fetched { fetch: 3, operation: "create-post".into(), found: true, body });
    let resolved = call.resolve(&complete).unwrap();
    assert_eq!((resolved.field("code").unwrap().normal.as_deref(), &resolved.fetches[..]), (Some("vc_1"), &[3][..]));
}

const ISSUED: &str = r#"{"id":"po_1","challenge":{"code":"vc_1"}}"#;

fn create(status: u16, body: &str, complete: bool) -> Verdict {
    let whole = answer(status, body);
    classify(&operation(POSTS, "create-post"), &Answer { complete, ..whole })
}

#[test]
fn a_first_step_is_issued_and_never_done() {
    let issued = Verdict::Issued { receipt: Some("po_1".into()) };
    assert_eq!(create(201, ISSUED, true), issued);
    let unknown = |status, body, said: &str| match create(status, body, true) {
        Verdict::Unknown { why } => assert!(why.contains(said), "{why}"),
        other => panic!("{status} {body}: {other:?}"),
    };
    unknown(200, r#"{"already_existed":true,"id":"po_1"}"#, "swallowed a repeat");
    // No 2xx of its own says done: only the completing operation does.
    unknown(200, ISSUED, "meets no condition");
    unknown(200, r#"{"id":"po_1"}"#, "meets no condition");
    unknown(201, r#"{"id":"po_1"}"#, "meets no condition");
    unknown(202, ISSUED, "meets no condition");
}

#[test]
fn a_whole_document_in_an_answer_that_was_cut_off_is_issued_and_nothing_else_is() {
    assert_eq!(create(201, ISSUED, false), Verdict::Issued { receipt: Some("po_1".into()) });
    let open = |body: &str| matches!(create(201, body, false), Verdict::Unknown { .. });
    for end in 0..ISSUED.len() {
        assert!(open(&ISSUED[..end]), "{}", &ISSUED[..end]);
    }
    assert!(open("") && open("201") && open("null") && open("[]") && open(&format!("{ISSUED} x")));
    // Neither proof nor success nor a swallowed repeat comes from half an answer.
    for (status, body) in [(400, r#"{"error":"no"}"#), (200, r#"{"already_existed":true}"#), (200, ISSUED)] {
        assert!(matches!(create(status, body, false), Verdict::Unknown { .. }), "{status} {body}");
    }
    let done =
        classify(&operation(POSTS, "answer-challenge"), &Answer { complete: false, ..answer(200, r#"{"id":"x"}"#) });
    assert!(matches!(done, Verdict::Unknown { .. }), "{done:?}");
}

#[test]
fn a_cut_number_is_no_document() {
    let text = POSTS.replacen(
        "accepted-when  = { status = 201, at = \"/challenge/code\" }",
        "accepted-when = { status = 201 }",
        1,
    );
    let create = operation(&text, "create-post");
    let cut = |body| classify(&create, &Answer { complete: false, ..answer(201, body) });
    assert!(matches!(cut("12"), Verdict::Unknown { .. }) && matches!(cut("true"), Verdict::Unknown { .. }));
    assert_eq!(cut("{}"), Verdict::Issued { receipt: None });
}
