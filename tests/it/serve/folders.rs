//! Folders: components come and go while a client is served.

use std::fs;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness, TENANT};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use serde_json::json;

use super::{TOOL, receipt};
use crate::agent::refund;

fn names(client: &mut Stdio) -> Vec<String> {
    let list = client.ask("tools/list", &json!({})).unwrap();
    let tools = list["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the client has been told that tools have changed.
pub(super) fn told_of_change(client: &mut Stdio) {
    let started = Instant::now();
    loop {
        let changed = |message: &serde_json::Value| message["method"] == "notifications/tools/list_changed";
        if let Some(at) = client.heard.iter().position(changed) {
            client.heard.remove(at);
            return;
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "nobody was told: {:?}", client.heard);
        if let Ok(message) = client.message(Duration::from_millis(200)) {
            client.heard.push(message);
        }
    }
}

#[test]
fn a_component_that_comes_is_served_and_one_that_goes_is_not() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    let mut command = harness.command();
    command.arg("serve").arg(&folder).args(["--context", &format!("tenant={TENANT}")]);
    let mut client = Stdio::start(&mut command).unwrap();
    assert_eq!(names(&mut client), ["effect_status"]);

    let file = folder.join("refunds.wasm");
    fs::copy(harness.component(), &file).unwrap();
    told_of_change(&mut client);
    assert_eq!(names(&mut client), ["effect_status", TOOL]);
    let first = receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());

    fs::copy(Guest::example("orders").unwrap().component, folder.join("orders.wasm")).unwrap();
    told_of_change(&mut client);
    fs::remove_file(&file).unwrap();
    told_of_change(&mut client);
    assert_eq!(names(&mut client), ["effect_status", "show-order"]);

    fs::copy(harness.component(), &file).unwrap();
    told_of_change(&mut client);
    super::is_replay(&client.call(TOOL, &refund("R-1", "again")).unwrap(), &first);
    assert_eq!(super::refunds(&harness), 1);
}

#[test]
fn one_that_fails_its_checks_says_why_and_the_others_are_served() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("broken.wasm"), "no component").unwrap();
    fs::copy(harness.component(), folder.join("refunds.wasm")).unwrap();
    let mut command = harness.command();
    command.arg("serve").arg(&folder);
    let mut client = Stdio::start(&mut command).unwrap();
    assert_eq!(names(&mut client), ["effect_status", TOOL]);
    let bare = Guest::example("refunds").unwrap().component.with_file_name("refunds-bare.wasm");
    fs::copy(bare, folder.join("without-contract.wasm")).unwrap();
    fs::copy(harness.component(), folder.join("twice.wasm")).unwrap();
    told_of_change(&mut client);
    assert_eq!(names(&mut client), ["effect_status", TOOL]);
    let run = client.close(ANSWER_WITHIN).unwrap();
    for said in ["broken.wasm is not served", "without-contract.wasm is not served", "twice.wasm is not served"] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
}
