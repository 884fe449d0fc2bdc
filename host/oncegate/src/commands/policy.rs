//! `oncegate policy`: making, checking and explaining the operator's grants.

mod endpoints;
mod limits;

pub(crate) use endpoints::unusable;

use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use oncegate_sandbox::describe::Description;
use oncegate_sandbox::policy::{self as rules, Denied, Grant, PolicyErrors};
use oncegate_sandbox::read;
use serde_json::{Value, json};

use super::signed;
use crate::args::{Policy, PolicyCommand};
use crate::exit::{Exit, usage};
use crate::home::Home;
use crate::print::{self, Cell, Tone, clean};

pub(crate) async fn run(home: &Home, args: &Policy) -> anyhow::Result<Exit> {
    match &args.command {
        PolicyCommand::Init { component, output } => init(home, &home.component(component).await?, output.as_deref()),
        PolicyCommand::Check => check(home).await,
        PolicyCommand::Schema => {
            print::out(&format!("{:#}\n", rules::schema()))?;
            Ok(Exit::Ok)
        }
        PolicyCommand::Limits => limits::run(home),
        PolicyCommand::Explain { component, operation, tenant } => {
            explain(home, &home.component(component).await?, operation, tenant.as_deref().unwrap_or_default())
        }
    }
}

/// Reads a component's description from its file.
pub(crate) fn describe(path: &Path) -> anyhow::Result<Description> {
    Description::read(&read(path)?).with_context(|| format!("the component {} would not load", path.display()))
}

fn init(home: &Home, component: &Path, output: Option<&Path>) -> anyhow::Result<Exit> {
    let text = rules::Policy::minimal(&describe(component)?);
    let Some(output) = output else {
        let shown = if home.json() { print::json(&json!({ "policy": text }), true)? } else { text };
        print::out(&shown)?;
        return Ok(Exit::Ok);
    };
    write_new(output, &text)?;
    if home.json() {
        print::out(&print::json(&json!({ "written": output.display().to_string() }), true)?)?;
    } else {
        print::out(&format!(
            "written {}; it grants nothing until you take away the `# ` of what you agree with\n",
            output.display()
        ))?;
    }
    Ok(Exit::Ok)
}

fn write_new(output: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("the policy {} cannot be written", output.display());
    if let Some(parent) = output.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).with_context(failed)?;
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(output);
    let mut file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already and is kept; write to another file and merge them", output.display())
        }
        other => other.with_context(failed)?,
    };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(failed)
}

async fn check(home: &Home) -> anyhow::Result<Exit> {
    let file = home.policy_file();
    if !file.exists() {
        bail!(
            "there is no policy at {}, so nothing is granted; `oncegate policy init COMPONENT -o {0}` starts one",
            file.display()
        );
    }
    let policy = match home.policy() {
        Ok(policy) => policy,
        Err(error) => return wrong(home, error),
    };
    let warnings = warnings(home, &policy).await;
    let name = file.display().to_string();
    if home.json() {
        print::out(&print::json(&json!({ "ok": true, "file": name, "errors": [], "warnings": warnings }), true)?)?;
        return Ok(Exit::Ok);
    }
    for warning in &warnings {
        eprintln!("{}", clean(&format!("warning: {name}: {warning}")));
    }
    let granted: usize = policy.components.iter().map(|rule| rule.grant.len()).sum();
    print::out(&format!(
        "{} {}: {} component entries, {granted} grants, {} endpoints, {} credentials{}\n",
        Tone::Good.paint("ok"),
        clean(&name),
        policy.components.len(),
        policy.endpoints.len(),
        policy.credentials.len(),
        clean(&asked(&policy)),
    ))?;
    Ok(Exit::Ok)
}

/// What the policy asks for beside grants; nothing where it asks for nothing.
pub(crate) fn asked(policy: &rules::Policy) -> String {
    let requires = policy.components.iter().fold(rules::Requires::default(), |all, rule| all.and(rule.requires));
    let mut asked: Vec<String> = requires.words().iter().map(|word| format!("a {word} for some effects")).collect();
    for (count, one, many) in
        [(policy.approvals.len(), "approval", "approvals"), (policy.exclusives.len(), "claim", "claims")]
    {
        match count {
            0 => {}
            1 => asked.push(format!("1 {one}")),
            count => asked.push(format!("{count} {many}")),
        }
    }
    if asked.is_empty() { String::new() } else { format!("; it asks for {}", asked.join(", ")) }
}

/// What a careful operator would want to know about a policy that parses.
async fn warnings(home: &Home, policy: &rules::Policy) -> Vec<String> {
    let mut warnings = policy.warnings();
    warnings.extend(unusable(policy, &home.policy_text().unwrap_or_default()).await);
    warnings
}

/// Errors of the text one to a line; every other error is the command's.
fn wrong(home: &Home, error: anyhow::Error) -> anyhow::Result<Exit> {
    let errors = error.downcast::<PolicyErrors>()?;
    if home.json() {
        let all: Vec<Value> = errors
            .errors()
            .iter()
            .map(|e| json!({ "file": e.file, "line": e.line, "key": e.key, "message": e.message }))
            .collect();
        print::out(&print::json(&json!({ "ok": false, "errors": all, "warnings": [] }), true)?)?;
    } else {
        errors.errors().iter().for_each(|error| eprintln!("{}", clean(&error.to_string())));
    }
    Ok(Exit::Failed)
}

fn explain(home: &Home, component: &Path, operation: &str, tenant: &str) -> anyhow::Result<Exit> {
    let description = describe(component)?;
    declared(&description, operation)?;
    let policy = home.policy()?;
    signed::read_beside(&policy, component, &description)?;
    let decision = rules::decide(&policy, &description.contract, &description.digest, tenant, operation);
    let entries = entries(&policy, &description, decision.as_ref().map_or(tenant, |grant| &grant.tenant), operation);
    let file = home.policy_file().display().to_string();
    if home.json() {
        print::out(&print::json(&explained_json(&file, operation, &decision, &entries), true)?)?;
    } else {
        print::out(&explained(&file, operation, &decision, &entries))?;
    }
    Ok(if decision.is_ok() { Exit::Ok } else { Exit::Refused })
}

/// A policy says nothing about an operation that does not exist.
fn declared(description: &Description, operation: &str) -> anyhow::Result<()> {
    let all: Vec<&str> = description.contract.operations.keys().map(String::as_str).collect();
    if all.contains(&operation) {
        return Ok(());
    }
    let there = if all.is_empty() { "it has none".to_owned() } else { format!("it has {}", all.join(", ")) };
    let component = &description.contract.component.name;
    Err(usage(format!("the contract of {component} has no operation {operation:?}; {there}")))
}

/// How one `[[component]]` entry bears on the question.
struct Entry {
    line: usize,
    component: &'static str,
    tenant: bool,
    grants: bool,
}

fn entries(policy: &rules::Policy, description: &Description, tenant: &str, operation: &str) -> Vec<Entry> {
    let entry = |rule: &rules::ComponentRule| Entry {
        line: rule.line,
        component: match (rule.digest, &rule.signer) {
            (None, None) => "any",
            (Some(digest), _) if digest != description.digest => "another",
            (_, Some(signer)) if policy.signed_by(&description.digest) != Ok(signer) => "not so signed",
            (_, Some(_)) => "this, signed",
            (_, None) => "this",
        },
        tenant: rule.tenants.iter().any(|name| name == tenant),
        grants: rule.grant.iter().any(|name| name == operation),
    };
    policy.components.iter().map(entry).collect()
}

fn explained(file: &str, operation: &str, decision: &Result<Grant, Denied>, entries: &[Entry]) -> String {
    let operation = clean(operation);
    let mut text = match decision {
        Ok(grant) => granted(file, &operation, grant),
        Err(denied) => {
            format!("{}: {operation}\nbecause {}\n", Tone::Bad.paint("denied"), clean(denied.for_operator()))
        }
    };
    if entries.is_empty() {
        let _ = writeln!(text, "{} has no [[component]] entry", clean(file));
        return text;
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let rows: Vec<Vec<Cell>> = entries
        .iter()
        .map(|entry| {
            vec![
                Cell::new(entry.line.to_string()),
                Cell::new(entry.component),
                Cell::new(yes(entry.tenant)),
                Cell::new(yes(entry.grants)),
            ]
        })
        .collect();
    let _ = write!(text, "\n{}", print::table(&["line", "component", "for the tenant", "grants it"], &rows));
    text
}

fn granted(file: &str, operation: &str, grant: &Grant) -> String {
    let mut text = format!(
        "{}: {operation}\nby the [[component]] at {}:{}\n",
        Tone::Good.paint("granted"),
        clean(file),
        grant.line
    );
    let mut put = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<11} {}", clean(value));
    };
    put("known by", &grant.known_by);
    put("effects of", &grant.owner);
    put("tenant", &grant.tenant);
    put("sent to", &format!("{} (line {})", grant.url, grant.endpoint_line));
    put("account", if grant.account.is_empty() { "none, as it is a lookup" } else { &grant.account });
    if let Some(database) = &grant.database {
        put("database", &format!("{}, {}", database.address.kind.name(), database.reached()));
        put("runs as", &database.runs_as());
        put("at most", &format!("{} rows, {}ms for a statement", database.rows_max, database.within.as_millis()));
    }
    put("egress", if grant.egress_direct { "direct, on the operator's word" } else { "relayed" });
    put("addresses", if grant.allow_private { "private ones too" } else { "public ones only" });
    match &grant.route.proxy {
        Some(proxy) => put("by way of", &format!("the proxy {}, which resolves the name unseen", proxy.url)),
        None => put("by way of", "no proxy"),
    }
    match &grant.route.ca {
        Some(file) => put("trusts", &format!("the certificates in {}", file.display())),
        None => put("trusts", "the public certificates"),
    }
    match &grant.credential {
        Some(credential) => {
            let line = grant.credential_line.map_or_else(String::new, |line| format!(" (line {line})"));
            put("credential", &format!("{}, from {}{line}", credential.name, credential.source));
        }
        None => put("credential", "none"),
    }
    put("answers", if grant.read_answers { "callers may read them whole" } else { "as the tool passes them on" });
    let requires = grant.requires.words();
    put("requires", &if requires.is_empty() { "neither plan nor permit".to_owned() } else { requires.join(" and ") });
    let approvals = grant.approvals.iter().map(|rule| format!("{rule} (line {})", rule.line));
    let approvals: Vec<String> = approvals.collect();
    put("approval", &if approvals.is_empty() { "none".to_owned() } else { approvals.join("; ") });
    for claim in &grant.exclusives {
        put("exclusive", &format!("{}, by {} (line {})", claim.name, claim.by.join(", "), claim.line));
    }
    text
}

fn explained_json(file: &str, operation: &str, decision: &Result<Grant, Denied>, entries: &[Entry]) -> Value {
    let entries: Vec<Value> = entries
        .iter()
        .map(|e| json!({ "line": e.line, "component": e.component, "for_tenant": e.tenant, "grants": e.grants }))
        .collect();
    match decision {
        Ok(grant) => json!({
            "granted": true, "file": file, "operation": operation, "line": grant.line, "known_by": grant.known_by,
            "owner": grant.owner, "tenant": grant.tenant, "url": grant.url,
            "endpoint_line": grant.endpoint_line, "credential_line": grant.credential_line,
            "account": grant.account, "egress_direct": grant.egress_direct, "allow_private": grant.allow_private,
            "proxy": grant.route.proxy.as_ref().map(|proxy| &proxy.url), "ca": grant.route.ca,
            "database": grant.database.as_ref().map(|d| json!({
                "kind": d.address.kind.as_str(), "reached": d.reached(), "runs_as": d.runs_as(), "user": d.rule.user,
                "role": d.rule.role, "rows": d.rows_max, "statement_timeout_ms": d.within.as_millis() as u64,
            })),
            "credential": grant.credential.as_ref().map(|c| json!({ "name": c.name, "from": c.source.to_string() })),
            "requires": grant.requires.words(), "read_answers": grant.read_answers,
            "approvals": grant.approvals.iter().map(|rule| json!({
                "line": rule.line, "by": rule.by,
                "elicitation_from": rule.elicitation_from.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "when": rule.when.as_ref().map(|when| json!({ "field": when.field, "above": when.above })),
            })).collect::<Vec<_>>(),
            "exclusive": grant.exclusives.iter().map(|claim| json!({
                "line": claim.line, "name": claim.name, "by": claim.by,
            })).collect::<Vec<_>>(),
            "entries": entries,
        }),
        Err(denied) => json!({
            "granted": false, "file": file, "operation": operation, "because": denied.for_operator(),
            "agent_hears": denied.for_agent(), "context_missing": denied.context_missing(), "entries": entries,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_private_and_never_written_over() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/policy.toml");
        write_new(&file, "# one\n").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write_new(&file, "# two\n").unwrap_err().to_string().contains("is there already"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# one\n");
    }
}
