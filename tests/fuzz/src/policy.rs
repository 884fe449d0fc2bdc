//! A policy, as its operator wrote it; and that nothing is granted which it does not name.

use std::sync::LazyLock;

use oncegate_contract::{Contract, EffectClass};
use oncegate_sandbox::policy::{Policy, decide};

static CONTRACTS: LazyLock<[Contract; 2]> = LazyLock::new(|| {
    let read = |text| Contract::parse("contract.toml", text).expect("an example");
    [
        read(include_str!("../../../guest-examples/refunds/contract.toml")),
        read(include_str!("../../../guest-examples/orders/contract.toml")),
    ]
});

/// The digest that corpus files name.
const DIGEST: [u8; 32] = [0xab; 32];

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Policy::parse("p.toml", text) {
        Ok(policy) => accepted(&policy, text),
        Err(errors) => {
            let lines = text.lines().count().max(1) + 1;
            assert!(!errors.errors().is_empty());
            for error in errors.errors() {
                assert!((1..=lines).contains(&error.line) && !error.message.is_empty(), "{error}");
            }
        }
    }
}

fn accepted(policy: &Policy, text: &str) {
    assert_eq!(Policy::parse("p.toml", text).as_ref(), Ok(policy), "read twice, it is two policies");
    assert!(Policy::parse("p.toml", &format!("{text}\n[nobody-knows-this]\n")).is_err(), "an unknown key is an error");
    let _ = policy.warnings();
    let mut without = policy.clone();
    without.components.clear();
    for contract in &*CONTRACTS {
        for operation in contract.operations.keys().map(String::as_str).chain(["", "no-such"]) {
            for tenant in ["", "acme", "other"] {
                granted_by_name(policy, contract, operation, tenant);
                assert!(decide(&without, contract, &DIGEST, tenant, operation).is_err(), "granted to nobody");
            }
        }
    }
}

fn granted_by_name(policy: &Policy, contract: &Contract, operation: &str, tenant: &str) {
    match decide(policy, contract, &DIGEST, tenant, operation) {
        Ok(grant) => {
            let declared = &contract.operations[operation];
            let named = policy
                .components
                .iter()
                .any(|rule| rule.tenants.contains(&grant.tenant) && rule.grant.iter().any(|name| name == operation));
            assert!(named, "{operation} is granted to {tenant:?} by no line");
            assert!(tenant.is_empty() || grant.tenant == tenant, "granted for another tenant");
            assert!(policy.endpoints.contains_key(&declared.endpoint), "an endpoint that nobody named");
            assert!(declared.effect == EffectClass::None || !grant.account.is_empty(), "a key without its account");
            let wanted = contract.endpoints[&declared.endpoint].credential.as_ref();
            let given = grant.credential.as_ref().map(|usage| &usage.name);
            assert!(given.is_none_or(|given| wanted == Some(given)), "another endpoint's credential");
        }
        Err(denied) => {
            let said = denied.for_agent();
            assert!(!said.is_empty() && !said.contains("policy") && !said.contains("[["), "{said}");
        }
    }
}
