//! The protocol's own judge: whatever of its requirements a host of tools can meet is met.

use std::fs;

use oncegate_tests::harness::Harness;
use oncegate_tests::mcp::conformance::{Check, judge};
use oncegate_tests::mcp::http::{NEWER, OLDER, Server};

use super::http;

/// Scenarios that need what this server does not offer, by the start of their names.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("completion-", "nothing is completed"),
    ("elicitation-", "people are not asked through the client"),
    ("input-required-", "people are not asked through the client"),
    ("prompts-", "there are no prompts"),
    ("resources-", "there are no resources"),
    ("tasks-", "the extension for tasks is not offered"),
    ("http-custom-header-", "no parameter of a tool travels as a header"),
    ("json-schema-2020-12", "it looks for a tool of its own"),
];

/// Why a failure says nothing of this server; none: it does.
fn excuse(check: &Check) -> Option<&'static str> {
    let offered = NOT_OFFERED.iter().find(|(start, _)| check.scenario.starts_with(start));
    if let Some((_, why)) = offered {
        return Some(why);
    }
    let needs_fixture = check.message.contains("there is no tool test_") || check.message.starts_with("Not testable");
    let lists = check.id.contains("prompts-list") || check.id.contains("resources-");
    match (needs_fixture, lists) {
        (true, _) => Some("it calls a tool of its own, which a component would have to export"),
        (_, true) => Some("there are no prompts and no resources"),
        _ => None,
    }
}

#[test]
fn what_applies_to_a_host_of_tools_is_met_in_both_revisions() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    fs::copy(harness.component(), folder.join("refunds.wasm")).unwrap();
    let token = http::token(&harness, "acme");
    let server = Server::start(harness.command().arg("serve").arg(&folder)).unwrap();
    for (revision, met_at_least) in [(OLDER, 8), (NEWER, 50)] {
        let checks = judge(server.address(), &token, revision, harness.folder()).unwrap();
        let failed = checks.iter().filter(|check| check.status == "FAILURE");
        let ours: Vec<_> = failed.filter(|check| excuse(check).is_none()).collect();
        assert!(ours.is_empty(), "{revision}: {ours:#?}");
        let applies = |check: &&Check| check.status == "SUCCESS" && excuse(check).is_none();
        let met = checks.iter().filter(applies).count();
        assert!(met >= met_at_least, "{revision}: only {met} were met");
    }
    assert_eq!(super::refunds(&harness), 0);
}
