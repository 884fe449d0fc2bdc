//! Databases: each that the policy names is logged in to, and its login examined.

use oncegate_contract::safe_text;
use oncegate_sandbox::database;
use oncegate_sandbox::policy::{NamedDatabase, Policy};

use super::{Finding, chain};

/// One finding for each thing that a login can do beside reading; one where it only reads.
pub(super) async fn databases(policy: &Policy) -> Vec<Finding> {
    let mut found = Vec::new();
    for named in policy.databases() {
        match named {
            Ok(named) => found.extend(one(policy, &named).await),
            Err((name, why)) => {
                let check = format!("database {}", safe_text(&name));
                found.push(Finding::warn(check, why, "not examined"));
            }
        }
    }
    found
}

async fn one(policy: &Policy, named: &NamedDatabase) -> Vec<Finding> {
    let check = format!("database {}", safe_text(&named.name));
    let grant = &named.grant;
    let examined = database::examine(grant, named.credential.as_ref(), &named.route, policy).await;
    let findings = match examined {
        Ok(findings) => findings,
        Err(error) => {
            let advice = format!("correct [endpoint.{}], or the server", safe_text(&named.name));
            return vec![Finding::fail(check, chain(&anyhow::Error::from(error)), advice)];
        }
    };
    let advice = |refused| match refused {
        true => "lookups there are refused: take the right away, or name a login that only reads",
        false => "take the right away, or know that it is there",
    };
    let mut found: Vec<Finding> = findings
        .iter()
        .map(|one| match one.refused {
            true => Finding::fail(&check, &one.what, advice(true)),
            false => Finding::warn(&check, &one.what, advice(false)),
        })
        .collect();
    if !findings.iter().any(|one| one.refused) && !grant.rule.unchecked {
        let kind = grant.address.kind.name();
        let who = match &grant.rule.file {
            Some(_) => "nobody's login".to_owned(),
            None => grant.runs_as(),
        };
        found.push(Finding::ok(check, format!("{kind}, {}: {who}, and it only reads", grant.reached())));
    }
    found
}
