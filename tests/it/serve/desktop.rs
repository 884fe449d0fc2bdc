//! A desktop client: it starts the command of its configuration, with little of the environment, anywhere.

use std::fs;
use std::process::Command;

use oncegate_tests::harness::{Harness, root};
use oncegate_tests::mcp::{Stdio, drivers};
use serde_json::Value;

use super::{TOOL, is_replay, receipt, refunds};
use crate::agent::refund;

#[test]
fn as_its_configuration_says() {
    let harness = Harness::new("refunds").unwrap();
    let folder = drivers::workplace(&harness).unwrap();
    let secret = harness.secrets().remove(0).1;
    let text = fs::read_to_string(root().join("tests/clients/desktop/config.json")).unwrap();
    let text = text.replace("/home/me/oncegate", &harness.home().to_string_lossy());
    let text = text.replace("/home/me", &folder.to_string_lossy()).replace("sk_live_...", &secret);
    let config: Value = serde_json::from_str(&text).unwrap();
    let server = &config["mcpServers"]["refunds"];

    let start = || {
        let mut command = Command::new(folder.join(server["command"].as_str().unwrap()));
        command.args(server["args"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()));
        command.env_clear().current_dir("/").env("HOME", "/nonexistent");
        let env = server["env"].as_object().unwrap();
        command.envs(env.iter().map(|(name, value)| (name, value.as_str().unwrap())));
        Stdio::start(&mut command).unwrap()
    };
    let first = receipt(&start().call(TOOL, &refund("R-1", "broken")).unwrap());
    is_replay(&start().call(TOOL, &refund("R-1", "in pieces")).unwrap(), &first);
    assert_eq!(refunds(&harness), 1);
}
