//! Clients that send what is no message: an error each, and the next request is answered.

use oncegate_tests::harness::{Harness, Options};
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use super::{TOOL, peak_kb, receipt, refunds, start};
use crate::agent::{refund, with_limits};

#[test]
fn what_is_no_message_is_answered_with_an_error() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\",\"params\":{}}}", "[".repeat(5_000));
    let frames = [
        ("{", -32700, json!(null)),
        ("nonsense", -32700, json!(null)),
        ("\u{0}\u{ffff}", -32700, json!(null)),
        (deep.as_str(), -32700, json!(null)),
        ("[]", -32600, json!(null)),
        ("{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}", -32600, json!(7)),
        ("{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"no/such\"}", -32601, json!(8)),
        ("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":[]}}", -32602, json!(9)),
    ];
    for (frame, code, id) in frames {
        client.write(frame).unwrap();
        let answer = client.message(ANSWER_WITHIN).unwrap();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{frame:.100}: {answer:#}");
    }
    // Nobody asked for an answer to these.
    client.notify("notifications/no-such", &json!({})).unwrap();
    client.write("").unwrap();
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    assert!(client.heard.is_empty(), "{:?}", client.heard);
    assert_eq!(refunds(&harness), 1);
}

/// Lines that look like a refund of R-1, and the error that each is told.
fn almost_calls() -> Vec<(Vec<u8>, i64)> {
    let params = json!({ "name": TOOL, "arguments": refund("R-1", "broken") });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let many = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":[{{}}{}]}}",
        ",{\"a\":0}".repeat(900_000)
    );
    vec![
        (call.replace("broken", "\\ud800").into_bytes(), -32700),
        ([call.replace("broken\"}}}", "").as_bytes(), b"\xff\"}}}"].concat(), -32700),
        (call.replace("\"R-1\"", "\"R-1\",\"return_id\":\"R-2\"").into_bytes(), -32700),
        (call.replace("\"id\":7", "\"id\":7,\"id\":8").into_bytes(), -32700),
        (many.into_bytes(), -32700),
        (format!("{call}{call}").into_bytes(), -32700),
        (format!("[{call},{call}]").into_bytes(), -32600),
        (call.replace("\"id\":7", "\"id\":null").into_bytes(), -32600),
        (call.replace("\"id\":7", "\"id\":1.5").into_bytes(), -32600),
        (call.replace("\"id\":7", "\"id\":[7]").into_bytes(), -32600),
        (vec![b'y'; 9_000_000], -32600),
    ]
}

#[test]
fn an_effect_under_way_ends_well_between_broken_lines() {
    let harness = with_limits("refunds", "answer-within = \"60s\"");
    harness.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut client = start(&harness);
    let call = json!({ "name": TOOL, "arguments": refund("R-9", "broken") });
    let id = client.request("tools/call", &call).unwrap();
    let mut expected = Vec::new();
    for (mut line, code) in almost_calls() {
        line.push(b'\n');
        client.write_bytes(&line).unwrap();
        expected.push(code);
    }
    let first = receipt(&client.answer(id, ANSWER_WITHIN).unwrap()["result"]);
    // Behind the last of them.
    client.ask("ping", &json!({})).unwrap();
    let errors: Vec<_> = client.heard.iter().filter_map(|told| told["error"]["code"].as_i64()).collect();
    assert_eq!(errors, expected, "{:?}", client.heard);
    assert_eq!(harness.provider().effects().unwrap()[0].id, first);
    assert_eq!(refunds(&harness), 1);
    let peak = peak_kb(client.pid());
    assert!(peak < 400_000, "{peak} kB");
}

#[test]
fn a_frame_of_100_mb_is_refused_and_not_held() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    client.write(&"x".repeat(100_000_000)).unwrap();
    let answer = client.message(ANSWER_WITHIN).unwrap();
    assert_eq!(answer["error"]["code"], -32600, "{answer:#}");
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    let peak = peak_kb(client.pid());
    assert!(peak < 300_000, "{peak} kB");
}

#[test]
fn two_requests_under_one_id_are_both_answered() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    for reason in ["broken", "in pieces"] {
        let params = json!({ "name": TOOL, "arguments": refund("R-1", reason) });
        client
            .write(&json!({ "jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params }).to_string())
            .unwrap();
    }
    let first = receipt(&client.answer(77, ANSWER_WITHIN).unwrap()["result"]);
    super::is_replay(&client.answer(77, ANSWER_WITHIN).unwrap()["result"], &first);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn what_a_guest_prints_is_told_and_capped() {
    let harness = Harness::with(crate::hostile::guest(), Options::default()).unwrap();
    let mut client = start(&harness);
    let flood = |bytes: u32| json!({ "return_id": "R-1", "script": [{ "flood": bytes }] });
    let result = client.call("peek", &flood(1_000_000));
    let logs: Vec<_> = client.heard.iter().filter(|message| message["method"] == "notifications/message").collect();
    assert_eq!(logs.len(), 1, "{result:?} {:?}", client.heard);
    let data = &logs[0]["params"]["data"];
    assert!(data["printed"].as_str().unwrap().len() <= 8 << 10);
    assert!(data["bytes_left_out"].as_u64().unwrap() > 1_000_000);
    client.ask("logging/setLevel", &json!({ "level": "error" })).unwrap();
    client.call("peek", &flood(10)).unwrap();
    let logs = client.heard.iter().filter(|message| message["method"] == "notifications/message").count();
    assert_eq!(logs, 1);
}
