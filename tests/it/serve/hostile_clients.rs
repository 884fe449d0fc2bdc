//! Clients that send what is no message: an error each, and the next request is answered.

use oncegate_tests::harness::{Harness, Options};
use oncegate_tests::mcp::ANSWER_WITHIN;
use serde_json::json;

use super::{TOOL, receipt, refunds, start};
use crate::agent::refund;

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

#[test]
fn a_frame_of_100_mb_is_refused_and_not_held() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    client.write(&"x".repeat(100_000_000)).unwrap();
    let answer = client.message(ANSWER_WITHIN).unwrap();
    assert_eq!(answer["error"]["code"], -32600, "{answer:#}");
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
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
