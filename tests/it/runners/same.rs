//! The same call with and without processes of their own: the same answers, the same requests, the same errors.

use oncegate_tests::harness::Run;

use crate::agent::with_limits;

use super::*;

const PATIENT: &str = "answer-within = \"60s\"";

/// One call by `oncegate call`; the answer without what depends on time.
fn call(harness: &Harness, isolation: &str, tool: &str, arguments: &Value) -> Value {
    let file = harness.folder().join("arguments.json");
    fs::write(&file, arguments.to_string()).unwrap();
    let mut command = harness.command();
    command.args(["--isolation", isolation, "call"]).arg(harness.component()).args([tool, "--json", "--args"]);
    command.arg(format!("@{}", file.display())).args(["--context", &format!("tenant={TENANT}")]);
    command.args(["--context", "trigger=spring", "--context", "run=one"]);
    let run = Run::of(&mut command).unwrap();
    let mut json = run.json().unwrap();
    for effect in json["effects"].as_array_mut().unwrap() {
        let effect = effect.as_object_mut().unwrap();
        effect.remove("at");
        // Confirming goes on beside the call, and may have ended or not.
        effect.remove("unconfirmed");
    }
    json
}

/// What was asked of the provider: method, path and body. The reference in it is derived from tenant and key alone.
fn requests(harness: &Harness) -> Vec<(String, String, String)> {
    let log = harness.provider().log().unwrap();
    log.into_iter().map(|one| (one.method, one.path, one.body)).collect()
}

#[test]
fn a_refund_is_the_same_and_is_one() {
    let told: Vec<_> = ["none", "process"]
        .map(|isolation| {
            let harness = with_limits("refunds", PATIENT);
            let refund = |reason: &str| json!({ "return_id": "R-1", "reason": reason });
            let first = call(&harness, isolation, "issue-refund", &refund("broken"));
            let again = call(&harness, isolation, "issue-refund", &refund("other words"));
            assert_eq!(first["status"], "done", "{first:#}");
            assert_eq!(again["status"], "already_done", "{again:#}");
            assert_eq!(harness.provider().count("refund").unwrap(), 1);
            (first, again, requests(&harness))
        })
        .into();
    assert_eq!(told[0], told[1]);
}

#[test]
fn whatever_a_guest_does_is_told_the_same() {
    let (here, there) = (puppet(LIMITS), puppet(LIMITS));
    let long = json!({ "name": "reason", "value": { "long": 2_000_000 } });
    let cases = [
        ("peek", json!([look(), refund()])),
        ("act", json!([{ "trap": null }])),
        ("act", json!([{ "leave": null }])),
        ("act", json!([{ "fail": "no\u{1b}[31m" }])),
        ("act", json!([{ "spin": null }])),
        ("act", json!([{ "recurse": null }])),
        ("act", json!([{ "allocate": null }])),
        ("act", json!([{ "flood": 300_000 }])),
        ("act", json!([{ "swell": 500_000 }])),
        ("act", json!([{ "context-often": 500 }])),
        ("act", json!([{ "fetch-often": 30 }])),
        ("act", json!([{ "perform": { "operation": "no-such", "fields": [] } }])),
        ("act", json!([{ "perform": { "operation": "create-refund", "fields": [], "more": 10_000 } }])),
        ("act", json!([look(), { "perform": { "operation": "create-refund", "fields": [long] } }])),
        ("act", json!([look(), refund(), refund(), { "trap": null }])),
        ("both", json!([look(), refund()])),
    ];
    for (tool, steps) in cases {
        let arguments = script("R-1", &steps);
        let told = call(&here, "none", tool, &arguments);
        assert_eq!(call(&there, "process", tool, &arguments), told, "{steps}");
    }
    assert_eq!(requests(&here), requests(&there));
    assert_eq!(there.provider().count("refund").unwrap(), 1);
}

const LIMITS: &str = "wall-time = \"1s\"\nlookups = 20\nhost-calls = 100\nresult = \"100KiB\"\n";

#[test]
fn a_campaign_is_the_same_and_is_one() {
    let told: Vec<_> = ["none", "process"]
        .map(|isolation| {
            let harness = with_limits("campaign", PATIENT);
            let readers: Vec<_> = (0..10).map(|n| format!("reader{n}@example.com")).collect();
            let arguments = json!({ "subject": "News", "body": "Dear reader", "recipients": readers });
            let told = call(&harness, isolation, "send-campaign", &arguments);
            assert_eq!(told["status"], "done", "{told:#}");
            assert_eq!(harness.provider().count("email").unwrap(), 10);
            (told, requests(&harness))
        })
        .into();
    assert_eq!(told[0], told[1]);
}

#[test]
fn what_a_guest_prints_is_told_while_it_runs_and_is_capped() {
    let harness = puppet("wall-time = \"1s\"\nlog = \"1KiB\"\n");
    let mut client = serve(&harness);
    client.ask("logging/setLevel", &json!({ "level": "debug" })).unwrap();
    let steps = json!([{ "flood": 20_000 }, look()]);
    client.call("peek", &script("R-1", &steps)).unwrap();
    let message = client.asked("notifications/message", ANSWER_WITHIN).unwrap();
    assert!(message["params"]["data"]["bytes_left_out"].as_u64().unwrap() > 10_000, "{message}");
}
