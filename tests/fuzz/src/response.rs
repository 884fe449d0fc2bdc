//! A provider's raw answer: parsed from its stored bytes, judged, searched by a settle rule, and scrubbed.
//!
//! The first byte says which operation asked, the second whether the exchange came to its end, the third and
//! fourth which of the answer's own bytes are the secret. The rest is what came over the wire.

use std::sync::LazyLock;

use oncegate_contract::{
    Answer, Contract, Fetched, Matches, Operation, Pointer, Resolved, Sources, Value, Verdict, classify, found,
    match_candidates, parse_json, resolve, safe_text,
};
use oncegate_sandbox::{http, without_secret};
use serde_json::{Value as Json, json};

/// What the reference of the refund in the corpus is.
const KEY: &str = "11111111-2222-8333-8444-555555555555";
const RECEIPT_BYTES_MAX: usize = oncegate_contract::limits::RECEIPT_BYTES_MAX;

struct Asked {
    operations: Vec<Operation>,
    refund: Operation,
    find_refund: Operation,
    resolved: Resolved,
}

static ASKED: LazyLock<Asked> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../host/contract/tests/fixtures/refunds.toml"),
        include_str!("../../../host/contract/tests/fixtures/posts.toml"),
        include_str!("../../../host/contract/tests/fixtures/campaign.toml"),
        include_str!("../../../host/contract/tests/fixtures/payout.toml"),
        include_str!("../../../host/contract/tests/fixtures/notes.toml"),
        PROOF,
    ];
    let contracts = texts.map(|text| Contract::parse("c.toml", text).expect("an example"));
    let refund = contracts[0].operations["create-refund"].clone();
    let find_refund = contracts[0].operations["find-refund"].clone();
    let resolved = refund_of(&refund);
    let operations = contracts.into_iter().flat_map(|contract| contract.operations.into_values()).collect();
    Asked { operations, refund, find_refund, resolved }
});

/// Conditions that no example has.
const PROOF: &str = r#"
[component]
name = "proofs"
effect = "keyed"
[endpoint.e]
url = "https://e.example"
[tool.send]
operations = ["send"]
[operation.send]
effect = "keyed"
action = "send"
request = "POST e:/send"
body = "json"
fields = [ { name = "id", at = "json:/id", role = "key", from = "argument:/id" } ]
receipt = "/id"
status-is-proof = [204]
accepted-when = { status = 202, at = "/items/*/state", in = ["queued", "sent"] }
no-effect-when = [ { status = 409 }, { status = [400, 422], at = "/errors/*/code", equals = "bad" } ]
duplicate-when = { status = 208 }
  [operation.send.settle]
  operation = "find"
  with = { id = "id" }
  receipt = "/id"
  must-equal = { id = "/for" }
[operation.find]
effect = "none"
request = "GET e:/sent/{id}"
fields = [ { name = "id", at = "path:id" } ]
"#;

fn refund_of(refund: &Operation) -> Resolved {
    let body = json!({ "id": "R-1001", "charge": "ch_1", "amount": 4200 });
    let lookups = [Fetched { fetch: 0, operation: "get-return".to_owned(), found: true, body }];
    let given = [("reason".to_owned(), Value::Text("damaged".to_owned()))];
    let (context, plan, arguments) = Default::default();
    let sources = Sources { context: &context, arguments: &arguments, lookups: &lookups, given: &given, plan: &plan };
    resolve(refund, &sources).expect("the example")
}

pub(crate) fn run(data: &[u8]) {
    let [which, ended, from, length, raw @ ..] = data else { return };
    let asked = &*ASKED;
    let operation = &asked.operations[usize::from(*which) % asked.operations.len()];
    let complete = ended & 1 == 1;
    let Some(answer) = parse(&operation.method, raw, complete) else { return };
    assert_eq!(answer.complete, complete);
    assert_eq!(parse(&operation.method, raw, complete).as_ref(), Some(&answer), "read twice, it is two answers");
    cut_off(operation, raw, &answer, usize::from(*from) << 3 | usize::from(*length));
    judged(operation, &answer);
    judged(&asked.refund, &answer);
    searched(asked, &answer);
    scrubbed(&answer, usize::from(*from), usize::from(*length));
}

fn parse(method: &str, raw: &[u8], complete: bool) -> Option<Answer> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(http::parse(method, raw, complete)).ok())
}

/// Of an answer that was cut off nothing is made up.
fn cut_off(operation: &Operation, raw: &[u8], whole: &Answer, at: usize) {
    let Some(cut) = parse(&operation.method, &raw[..at.min(raw.len())], false) else { return };
    if whole.complete {
        assert!(whole.body.starts_with(&cut.body), "a cut answer says more than the whole one");
    }
    let verdict = classify(operation, &cut);
    assert!(matches!(verdict, Verdict::Unknown { .. } | Verdict::Issued { .. }), "{verdict:?}");
}

fn judged(operation: &Operation, answer: &Answer) {
    let verdict = classify(operation, answer);
    assert_eq!(classify(operation, answer), verdict);
    let _ = found(operation, answer);
    match verdict {
        Verdict::Done { receipt } => {
            assert!(answer.complete, "done by half an answer");
            is_receipt(&receipt);
            let proven = format!("status:{}", answer.status);
            let by_status = operation.status_is_proof.contains(&answer.status) && receipt == proven;
            assert!(by_status || shown(operation.receipt.as_ref(), &answer.body) == Some(receipt));
        }
        Verdict::Issued { receipt } => {
            receipt.iter().for_each(|receipt| is_receipt(receipt));
            assert!(!operation.accepted_when.is_empty());
        }
        Verdict::NoEffect { reason } => {
            assert!(answer.complete, "half an answer is proof");
            assert!(!operation.no_effect_when.is_empty());
            assert!(safe_text(&reason) == reason, "{reason:?} is not safe to show");
        }
        Verdict::Unknown { why } => assert!(!why.is_empty()),
    }
}

fn is_receipt(receipt: &str) {
    let fits = !receipt.is_empty() && receipt.len() <= RECEIPT_BYTES_MAX;
    assert!(fits && !receipt.chars().any(char::is_control), "{receipt:?} is no receipt");
}

fn shown(pointer: Option<&Pointer>, body: &[u8]) -> Option<String> {
    let json: Json = serde_json::from_slice(body).ok()?;
    match json.pointer(&pointer?.to_string())? {
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn searched(asked: &Asked, answer: &Answer) {
    let matches =
        |taken: &[String]| match_candidates(&asked.refund, &asked.find_refund, &asked.resolved, KEY, answer, taken);
    match matches(&[]) {
        Matches::One { receipt, .. } => {
            is_receipt(&receipt);
            assert!(answer.complete);
            let json = parse_json(&answer.body).expect("a list");
            let ours = |object: &&Json| object.pointer("/metadata/ref").and_then(Json::as_str) == Some(KEY);
            let list = json["data"].as_array().expect("a list");
            assert!(list.iter().filter(ours).any(|object| shown_in(object) == receipt), "nobody's receipt");
            assert!(!matches!(matches(&[receipt]), Matches::One { .. } | Matches::Many { .. }), "another row's");
        }
        Matches::Many { receipts } => assert!(receipts.len() > 1),
        Matches::Absent => assert!(answer.complete && answer.status / 100 == 2, "absent by {}", answer.status),
        Matches::Undetermined { why } => assert!(!why.is_empty()),
    }
}

fn shown_in(object: &Json) -> String {
    object["id"].as_str().map_or_else(|| object["id"].to_string(), str::to_owned)
}

/// Whatever of the answer is the secret, the guest's copy does not hold it.
fn scrubbed(answer: &Answer, from: usize, length: usize) {
    let bytes = answer.body.get(from..from + length % 64 + 4).unwrap_or(b"sk_test_51H");
    let Ok(secret) = std::str::from_utf8(bytes) else { return };
    let clean = without_secret(answer.clone(), secret);
    let holds = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    assert!(!holds(&clean.body), "{secret:?} is in the body");
    assert!(!clean.headers.iter().any(|(_, value)| holds(value)), "{secret:?} is in a header");
    assert_eq!(clean.status, answer.status);
    assert_eq!(clean.headers.len(), answer.headers.len());
}
