//! `effect_status`: asked by arguments or identifiers, sends nothing.

use oncegate_tests::harness::Harness;
use serde_json::{Value, json};

use super::{TOOL, receipt, refunds, start};
use crate::agent::refund;

fn effects(answer: &Value) -> Vec<(&str, &str, &str)> {
    let effects = answer["structuredContent"]["effects"].as_array().unwrap().iter();
    effects
        .map(|effect| {
            let text = |name: &str| effect[name].as_str().unwrap_or_default();
            (text("label"), text("state"), text("receipt"))
        })
        .collect()
}

#[test]
fn by_arguments_and_by_identifiers() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let by_arguments = json!({ "tool": TOOL, "arguments": refund("R-1", "whatever") });
    let by_identifiers = json!({ "identifiers": ["R-1"] });

    let answer = client.call("effect_status", &by_arguments).unwrap();
    assert_eq!(effects(&answer), []);
    assert_eq!(answer["structuredContent"]["not_asked_for"], 1, "{answer:#}");
    assert_eq!(answer["structuredContent"]["complete"], true, "{answer:#}");
    assert_eq!(refunds(&harness), 0);

    let receipt = receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    for question in [by_arguments, by_identifiers, json!({ "tool": TOOL, "identifiers": ["R-1"] })] {
        let answer = client.call("effect_status", &question).unwrap();
        assert_eq!(effects(&answer), [("refund R-1", "done", receipt.as_str())], "{question}");
        assert_eq!(answer["isError"], false);
    }
    for nothing in [json!({ "identifiers": ["R-2"] }), json!({ "tool": "other", "identifiers": ["R-1"] })] {
        let answer = client.call("effect_status", &nothing).unwrap();
        assert_eq!(effects(&answer), [], "{nothing}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn what_is_unknown_says_so_and_stays_as_it_is() {
    use oncegate_tests::provider::mode::Mode;
    let limits = "request-deadline = \"1s\"\nidle = \"1s\"";
    let harness = crate::agent::with_limits("refunds", limits);
    let provider = harness.provider();
    provider.mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    provider.mode(Mode::Error503Before, "GET", "/v1/refunds", None).unwrap();
    let mut client = start(&harness);
    client.call(TOOL, &refund("R-1", "broken")).unwrap();
    for question in [json!({ "tool": TOOL, "arguments": refund("R-1", "x") }), json!({ "identifiers": ["R-1"] })] {
        let answer = client.call("effect_status", &question).unwrap();
        assert_eq!(effects(&answer), [("refund R-1", "unknown", "")], "{answer:#}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_question_that_cannot_be_read_is_refused() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let wrong = [
        json!({}),
        json!({ "key": "3f9a" }),
        json!({ "tool": TOOL }),
        json!({ "identifiers": [] }),
        json!({ "tool": TOOL, "arguments": { "return_id": 1 } }),
        json!({ "tool": "none", "arguments": {} }),
    ];
    for question in wrong {
        let answer = client.call("effect_status", &question).unwrap();
        assert_eq!(answer["structuredContent"]["code"], "invalid_arguments", "{question}: {answer:#}");
        assert_eq!(answer["isError"], true);
    }
}
