//! The one decision: may this component do this operation for this tenant, and how.
//!
//! A pure function of the policy, the contract and the digest: no clock, no file, no environment.

use std::collections::BTreeSet;

use oncegate_contract::{Contract, Database, EffectClass, Operation};

use super::parse::base_url;
use super::{
    ApprovalRule, ComponentRule, CredentialUse, DatabaseGrant, EndpointRule, Exclusive, Policy, Requires, database,
    gates,
};
use crate::describe::digest_text;
use crate::egress::{Proxy, Route};
use crate::limits::Limits;

/// What an operation was granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The line of the `[[component]]` that grants it.
    pub line: usize,
    /// For whom: the context's tenant, or the policy's only one.
    pub tenant: String,
    /// The owner of the operation's actions: the policy's lineage, else the contract's component name.
    pub owner: String,
    /// By what the policy knows the component.
    pub known_by: String,
    /// The base URL: the policy's for the endpoint, else the contract's.
    pub url: String,
    /// The account at the provider; empty for lookups at an endpoint that names none.
    pub account: String,
    /// The line of the `[endpoint.NAME]` that says so.
    pub endpoint_line: usize,
    /// The line of the `[credential.NAME]` that is attached.
    pub credential_line: Option<usize>,
    /// Whether private addresses may be connected to.
    pub allow_private: bool,
    /// By which way the endpoint is reached.
    pub route: Route,
    /// Where an answer may send a lookup on to: the endpoints of this component's granted lookups.
    pub onward: Vec<Onward>,
    /// Whether the operator states that nothing stands between this host and the provider.
    pub egress_direct: bool,
    /// The database that is asked; none for HTTP.
    pub database: Option<DatabaseGrant>,
    /// The credential to attach.
    pub credential: Option<CredentialUse>,
    /// What an effect has to name before it is sent.
    pub requires: Requires,
    /// Whether callers may read its whole stored answers.
    pub read_answers: bool,
    /// When a person approves first.
    pub approvals: Vec<ApprovalRule>,
    /// The claims it needs.
    pub exclusives: Vec<Exclusive>,
    /// Limits of the call.
    pub limits: Limits,
}

impl Grant {
    /// The same for a lookup that is not sent on: what another place says, or the same one without the credential,
    /// proves neither that an effect is absent nor whose an account is.
    #[must_use]
    pub(crate) fn staying(self) -> Self {
        Self { onward: Vec::new(), ..self }
    }
}

/// An endpoint that a lookup may be sent on to.
#[derive(Debug, Clone)]
pub struct Onward {
    /// Its base URL.
    pub url: String,
    /// By which way it is reached.
    pub route: Route,
}

#[cfg(test)]
impl Grant {
    /// A lookup at that URL, and where it may be sent on to.
    pub(crate) fn for_tests(url: &str, onward: Vec<Onward>) -> Self {
        Self {
            line: 1,
            tenant: "acme".to_owned(),
            owner: "tests".to_owned(),
            url: url.to_owned(),
            account: String::new(),
            allow_private: false,
            route: Route::default(),
            onward,
            known_by: "digest".to_owned(),
            endpoint_line: 1,
            credential_line: None,
            egress_direct: false,
            database: None,
            credential: None,
            requires: Requires::default(),
            read_answers: false,
            approvals: Vec::new(),
            exclusives: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Why an operation is not granted, in two texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operator}")]
pub struct Denied {
    agent: String,
    operator: String,
    missing: Option<&'static str>,
}

impl Denied {
    fn new(operation: &str, operator: String) -> Self {
        let operation = oncegate_contract::safe_text(operation);
        Self { agent: format!("The operation {operation} is not permitted here."), operator, missing: None }
    }

    pub(super) fn unlisted(operator: String) -> Self {
        Self { agent: "This component is not permitted to reach anything here.".into(), operator, missing: None }
    }

    fn without_tenant(operator: String) -> Self {
        Self {
            agent: "The orchestrator did not say for which tenant this call is.".into(),
            operator,
            missing: Some("tenant"),
        }
    }

    /// For the agent: says that it is so, and nothing about how it could be otherwise.
    #[must_use]
    pub fn for_agent(&self) -> &str {
        &self.agent
    }

    /// For the operator and the log: says what in the policy would have to change.
    #[must_use]
    pub fn for_operator(&self) -> &str {
        &self.operator
    }

    /// The fact that the orchestrator did not give, if that is why.
    #[must_use]
    pub const fn context_missing(&self) -> Option<&'static str> {
        self.missing
    }
}

/// Decides. `tenant` is the context's; empty when nobody gave one.
///
/// # Errors
/// [`Denied`] for everything that is not granted by name.
pub fn decide(
    policy: &Policy,
    contract: &Contract,
    digest: &[u8; 32],
    tenant: &str,
    operation: &str,
) -> Result<Grant, Denied> {
    let Some(declared) = contract.operations.get(operation) else {
        return Err(Denied::new(
            operation,
            format!("the contract of {} declares no operation {operation}", contract.component.name),
        ));
    };
    let tenant = self::tenant(policy, digest, tenant)?;
    let owner = super::owner(policy, digest, &contract.component.name)?;
    let (rule, requires) = granting(policy, digest, &tenant, operation)?;
    let name = &declared.endpoint;
    let deny = |why: String| Denied::new(operation, why);
    let endpoint = policy.endpoints.get(name).ok_or_else(|| {
        deny(format!("the policy has no [endpoint.{name}], which {operation} is sent to; add it with `account` and, to bind the address, `url`"))
    })?;
    let url = url(contract, name, endpoint).map_err(deny)?;
    let credential = credential(policy, contract, rule, name).map_err(deny)?;
    let asked = contract.endpoints.get(name).map_or(url.as_str(), |endpoint| endpoint.url.as_str());
    let database = database::grant(name, endpoint, asked, credential.as_ref()).map_err(deny)?;
    let account = match (&endpoint.account, declared.effect) {
        (Some(account), _) => account.clone(),
        (None, EffectClass::None) => String::new(),
        (None, EffectClass::Keyed) => {
            return Err(deny(format!(
                "[endpoint.{name}] at line {} has no `account`, which is part of the key of {operation}",
                endpoint.line
            )));
        }
    };
    Ok(Grant {
        line: rule.line,
        read_answers: may_read_answers(policy, digest, &tenant, operation),
        tenant,
        owner: owner.owner,
        known_by: owner.by,
        url,
        account,
        endpoint_line: endpoint.line,
        credential_line: credential.as_ref().and_then(|usage| Some(policy.credentials.get(&usage.name)?.line)),
        allow_private: endpoint.allow_private,
        route: route(policy, endpoint).map_err(deny)?,
        onward: if declared.effect == EffectClass::None { onward(policy, contract, rule) } else { Vec::new() },
        egress_direct: endpoint.egress_direct,
        database,
        credential,
        requires,
        approvals: policy.approvals.iter().filter(|rule| rule.operation == operation).cloned().collect(),
        exclusives: gates::exclusives(&policy.exclusives, declared).map_err(deny)?,
        limits: policy.limits,
    })
}

/// The account that the policy names for the operation's endpoint.
#[must_use]
pub fn account(policy: &Policy, operation: &Operation) -> Option<String> {
    policy.endpoints.get(&operation.endpoint)?.account.clone()
}

pub(super) fn matching<'a>(policy: &'a Policy, digest: &'a [u8; 32]) -> impl Iterator<Item = &'a ComponentRule> {
    policy.components.iter().filter(|rule| policy.is_for(rule, digest))
}

/// The tenant of a call: the one given, else the policy's only one.
///
/// # Errors
/// If none was given and the policy names several, or none for this component: a default beside
/// named tenants would mix their effects.
pub fn tenant(policy: &Policy, digest: &[u8; 32], given: &str) -> Result<String, Denied> {
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    if let Some(only) = only_tenant(policy)
        && matching(policy, digest).any(|rule| !rule.tenants.is_empty())
    {
        return Ok(only.to_owned());
    }
    let mine: BTreeSet<&str> =
        matching(policy, digest).flat_map(|rule| rule.tenants.iter().map(String::as_str)).collect();
    let everyone: BTreeSet<&str> =
        policy.components.iter().flat_map(|rule| rule.tenants.iter().map(String::as_str)).collect();
    match (mine.first(), everyone.len()) {
        (None, _) => Err(Denied::unlisted(format!(
            "no [[component]] of the policy is for {}; add one with `digest`, `tenants` and `grant`{}",
            digest_text(digest),
            policy.why_not_signed(digest)
        ))),
        (_, count) => Err(Denied::without_tenant(format!(
            "the context has no `tenant` and the policy names {count}; give one with --context tenant=NAME"
        ))),
    }
}

/// The tenant whom all components of the policy are for, if there is one alone.
fn only_tenant(policy: &Policy) -> Option<&str> {
    let mut tenants = policy.components.iter().flat_map(|rule| &rule.tenants);
    let first = tenants.next()?;
    tenants.all(|other| other == first).then_some(first)
}

/// Whether callers of the tenant may read the whole stored answers of an operation that the component is
/// granted.
#[must_use]
pub fn may_read_answers(policy: &Policy, digest: &[u8; 32], tenant: &str, operation: &str) -> bool {
    let named = |names: &[String], name: &str| names.iter().any(|one| one == name);
    let fits = |rule: &&ComponentRule| named(&rule.tenants, tenant) && named(&rule.grant, operation);
    matching(policy, digest).filter(fits).any(|rule| rule.read_answers)
}

/// Whether the policy lets the component do anything at all for this tenant; without that it hears no
/// stored answer either.
///
/// # Errors
/// [`Denied`] when no entry is for both.
pub fn admit(policy: &Policy, digest: &[u8; 32], tenant: &str) -> Result<(), Denied> {
    let tenant = self::tenant(policy, digest, tenant)?;
    if matching(policy, digest).any(|rule| rule.tenants.contains(&tenant)) {
        return Ok(());
    }
    Err(Denied::unlisted(format!(
        "no [[component]] of the policy is for {} and the tenant {tenant:?}{}",
        digest_text(digest),
        policy.why_not_signed(digest)
    )))
}

/// The entry that grants the operation, one that pins the digest before one that does not; and what any
/// entry that grants it requires.
fn granting<'a>(
    policy: &'a Policy,
    digest: &'a [u8; 32],
    tenant: &str,
    operation: &str,
) -> Result<(&'a ComponentRule, Requires), Denied> {
    let digest_words = digest_text(digest);
    let all: Vec<&ComponentRule> = matching(policy, digest).collect();
    if all.is_empty() {
        return Err(Denied::new(
            operation,
            format!(
                "no [[component]] of the policy is for {digest_words}; add one with `digest`, `tenants` and `grant`{}",
                policy.why_not_signed(digest)
            ),
        ));
    }
    let for_tenant: Vec<&ComponentRule> =
        all.into_iter().filter(|rule| rule.tenants.iter().any(|name| name == tenant)).collect();
    if for_tenant.is_empty() {
        return Err(Denied::new(
            operation,
            format!("no [[component]] for {digest_words} lists the tenant {tenant:?} under `tenants`"),
        ));
    }
    let grants = for_tenant.iter().filter(|rule| rule.grant.iter().any(|name| name == operation));
    let requires = grants.clone().fold(Requires::default(), |all, rule| all.and(rule.requires));
    grants.max_by_key(|rule| (rule.digest.is_some(), rule.signer.is_some())).map(|rule| (*rule, requires)).ok_or_else(
        || {
            Denied::new(
                operation,
                format!(
                    "no [[component]] for {digest_words} and the tenant {tenant:?} lists {operation} under `grant`"
                ),
            )
        },
    )
}

fn url(contract: &Contract, name: &str, endpoint: &EndpointRule) -> Result<String, String> {
    let declared = contract.endpoints.get(name).map(|endpoint| &endpoint.url);
    let url = endpoint
        .url
        .as_ref()
        .or(declared)
        .ok_or_else(|| format!("neither [endpoint.{name}] nor the contract has a `url`"))?;
    if Database::of_url(declared.unwrap_or(url)).is_some() {
        return Ok(url.clone());
    }
    let parsed = base_url(url).map_err(|why| format!("the URL of the endpoint {name}: {why}"))?;
    // Plain HTTP shows a credential and an effect to whoever is on the way.
    if parsed.scheme() == "http" && !endpoint.allow_private {
        return Err(format!(
            "[endpoint.{name}] at line {} is reached over plain http, which is allowed only together with `allow-private = true`; use https",
            endpoint.line
        ));
    }
    Ok(url.clone())
}

pub(super) fn route(policy: &Policy, endpoint: &EndpointRule) -> Result<Route, String> {
    let credential = match &endpoint.proxy_credential {
        Some(name) => {
            let found = policy.credentials.get(name).map(|found| found.usage(name));
            let found =
                found.ok_or_else(|| format!("the policy has no [credential.{name}], which a proxy is to be shown"))?;
            if !found.attach.is_for_a_proxy() {
                return Err(format!(
                    "[credential.{name}] is for a proxy; its `attach` is \"header:Proxy-Authorization\""
                ));
            }
            Some(found)
        }
        None => None,
    };
    let proxy = endpoint.proxy.clone().map(|url| Proxy { url, credential });
    let resolver = policy.resolver.clone();
    Ok(Route { allow_private: endpoint.allow_private, ca: endpoint.ca.clone(), proxy, resolver })
}

/// The endpoints that the policy has and this component's granted lookups are sent to.
fn onward(policy: &Policy, contract: &Contract, rule: &ComponentRule) -> Vec<Onward> {
    let granted =
        |operation: &&Operation| operation.effect == EffectClass::None && rule.grant.contains(&operation.name);
    let lookups = contract.operations.values().filter(granted);
    let names: BTreeSet<&String> = lookups.map(|operation| &operation.endpoint).collect();
    let reached = names.into_iter().filter_map(|name| {
        let endpoint = policy.endpoints.get(name)?;
        Some(Onward { url: url(contract, name, endpoint).ok()?, route: route(policy, endpoint).ok()? })
    });
    reached.collect()
}

fn credential(
    policy: &Policy,
    contract: &Contract,
    rule: &ComponentRule,
    name: &str,
) -> Result<Option<CredentialUse>, String> {
    let wanted = contract.endpoints.get(name).and_then(|e| e.credential.as_ref());
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let Some(found) = policy.credentials.get(wanted) else {
        return Err(format!("the policy has no [credential.{wanted}], which the endpoint {name} needs"));
    };
    // Whoever can bring a component could otherwise have the secret sent to a URL of his own.
    let bound = policy.endpoints.get(name).is_some_and(|e| e.url.is_some());
    if rule.digest.is_none() && !bound {
        return Err(format!(
            "[[component]] at line {} names no digest, so the contract's own URL would decide where [credential.{wanted}] goes; give `digest` there (beside a signer too) or `url` in [endpoint.{name}]",
            rule.line
        ));
    }
    if found.attach.is_for_a_proxy() {
        return Err(format!("[credential.{wanted}] is for a proxy, and the endpoint {name} would be shown it"));
    }
    Ok(Some(found.usage(wanted)))
}
