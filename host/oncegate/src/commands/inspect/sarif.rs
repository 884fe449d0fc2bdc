//! `inspect --sarif`: what a reviewer should look at, as SARIF 2.1.0 (OASIS) for code scanning: each effect as a
//! note, each risk of the contract as a warning, and what a new version can do beyond the old one as an error.

use oncegate_contract::{EffectClass, lint};
use oncegate_sandbox::describe::Description;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::changes::{Change, Way};
use super::{statements, words};
use crate::print::hex;

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Of a name in the path of a URI reference, all else is written as percent and two digits (RFC 3986 §2.3).
const NOT_IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// One finding before it is JSON.
struct Finding {
    rule: &'static str,
    level: Level,
    place: String,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Note,
    Warning,
    Error,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The whole log of one run over one component; `path` as it was given.
pub(super) fn log(path: &str, description: &Description, changes: Option<&[Change]>) -> Value {
    let mut findings = effects(description);
    findings.extend(questions(description));
    findings.extend(risks(description));
    findings.extend(changes.unwrap_or_default().iter().map(change));
    let driver = json!({
        "name": "oncegate inspect",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": rules(&findings),
    });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "artifacts": [{
                "location": { "uri": uri(path) },
                "length": description.size,
                "hashes": { "sha-256": description.digest_text().trim_start_matches("sha256:") },
            }],
            "results": findings.iter().map(|finding| result(path, finding)).collect::<Vec<_>>(),
        }],
    })
}

fn effects(description: &Description) -> Vec<Finding> {
    let contract = &description.contract;
    let acting = contract.operations.values().filter(|operation| operation.effect == EffectClass::Keyed);
    acting
        .map(|operation| {
            let credential = words::credential(contract, operation)
                .map_or_else(|| "no credential".to_owned(), |name| format!("credential {name}"));
            let action = operation.action.as_deref().unwrap_or_default();
            let request = words::request(contract, operation);
            Finding {
                rule: "effect",
                level: Level::Note,
                place: format!("operation.{}", operation.name),
                message: format!("It can do \"{action}\": {request}, with {credential}."),
            }
        })
        .collect()
}

/// What is asked of databases: a reviewer reads each statement.
fn questions(description: &Description) -> Vec<Finding> {
    let contract = &description.contract;
    let asking = contract.operations.values().filter_map(|o| Some((o, words::database(contract, o)?)));
    asking
        .map(|(operation, kind)| {
            let asked: Vec<String> =
                words::asked(operation).into_iter().map(|(key, text)| format!("{key} {text}")).collect();
            let request = words::request(contract, operation);
            Finding {
                rule: "database-lookup",
                level: Level::Note,
                place: format!("operation.{}", operation.name),
                message: format!("It asks {} by {request}, {}: {}.", kind.name(), words::kept(kind), asked.join("; ")),
            }
        })
        .collect()
}

fn risks(description: &Description) -> Vec<Finding> {
    let contract = &description.contract;
    let lints = lint(contract).into_iter();
    let mut findings: Vec<Finding> = lints
        .map(|lint| Finding { rule: lint.code, level: Level::Warning, place: lint.place, message: lint.message })
        .collect();
    findings.extend(statements::unsettled(contract).into_iter().map(|(of, why)| Finding {
        rule: "only-a-person-settles",
        level: Level::Note,
        place: format!("operation.{of}"),
        message: format!("After a lost answer only a person can say whether it happened: {why}."),
    }));
    findings
}

fn change(change: &Change) -> Finding {
    let (rule, level) = match change.way {
        Way::More => ("does-more", Level::Error),
        Way::Less => ("does-less", Level::Note),
        Way::Other => ("differs", Level::Note),
    };
    Finding { rule, level, place: change.at.clone(), message: format!("{}: {}", change.at, change.what) }
}

/// Each rule that has a finding, once, in the order of the findings.
fn rules(findings: &[Finding]) -> Vec<Value> {
    let mut rules: Vec<(&str, Level)> = Vec::new();
    for finding in findings {
        if !rules.iter().any(|(rule, _)| *rule == finding.rule) {
            rules.push((finding.rule, finding.level));
        }
    }
    let value = |(rule, level): (&str, Level)| {
        json!({
            "id": rule,
            "shortDescription": { "text": said(rule) },
            "defaultConfiguration": { "level": level.word() },
        })
    };
    rules.into_iter().map(value).collect()
}

fn said(rule: &str) -> &'static str {
    match rule {
        "effect" => "The component can cause this effect, at most once for each key",
        "database-lookup" => "The component asks this of a database, and nothing else",
        "only-a-person-settles" => "No lookup finds out what became of a lost answer",
        "does-more" => "The new version can do more than the old one",
        "does-less" => "The new version can do less than the old one",
        "differs" => "The new version differs from the old one",
        _ => "The contract is valid, and risky here",
    }
}

fn result(path: &str, finding: &Finding) -> Value {
    let Finding { rule, level, place, message } = finding;
    let print = Sha256::new().chain_update(rule).chain_update([0]).chain_update(place).chain_update([0]);
    let print: [u8; 32] = print.chain_update(message).finalize().into();
    json!({
        "ruleId": rule,
        "level": level.word(),
        "message": { "text": message },
        "locations": [{
            "physicalLocation": { "artifactLocation": { "uri": uri(path), "index": 0 } },
            "logicalLocations": [{ "fullyQualifiedName": place, "kind": "member" }],
        }],
        "partialFingerprints": { "oncegate/v1": hex(&print) },
    })
}

/// A relative path stays relative: the reader knows where it began.
fn uri(path: &str) -> String {
    let encoded = utf8_percent_encode(path, NOT_IN_A_PATH).to_string();
    if path.starts_with('/') { format!("file://{encoded}") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_uri() {
        assert_eq!(uri("a b/c%.wasm"), "a%20b/c%25.wasm");
        assert_eq!(uri("/x/é.wasm"), "file:///x/%C3%A9.wasm");
    }

    #[test]
    fn a_wider_version_is_an_error_and_a_narrower_one_is_not() {
        let at = |way| change(&Change { way, at: "tool a".into(), what: "is new".into() });
        assert_eq!(at(Way::More).level.word(), "error");
        assert!([Way::Less, Way::Other].map(at).iter().all(|finding| finding.level == Level::Note));
    }
}
