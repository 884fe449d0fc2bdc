//! The text that `oncegate policy init` starts a policy with.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use oncegate_contract::{Database, EffectClass, Role, ValueKind, safe_text};

use super::CONTEXT_FACTS;
use crate::describe::Description;

const HEAD: &str = "\
#:schema ./policy.schema.json
## An editor completes and checks this file by that schema once `oncegate policy schema` is written
## beside it: oncegate policy schema > policy.schema.json
##
## What the component below may do here. As it stands this file grants nothing: every line is
## commented out. Read each, take away the leading `# ` of those you agree with, keep the rest.
## An unknown key is an error. No tool and no agent can read or change this file.
";
const COMPONENT: &str = "
## One entry for each build that you reviewed; the digest pins its code and its contract. Without
## `digest` the entry would be for every component. In place of a digest or beside it, `signer = \"NAME\"`
## takes what was signed (`oncegate sign`) with a key of [signer.NAME]; both must hold where both stand.
";
const TENANTS: &str = "\
## For whom it acts. With one tenant in the whole file the context need not name it.
";
const GRANT: &str = "## Operations that you allow; the contract declares no others.\n";
const GATES: &str = "
## With `read-answers = true` in the entry above, callers of its tenants may read the providers' whole
## stored answers where a tool's result is larger than is passed on; without it only an operator can.
##
## Each effect can be made to wait for more. In the entry above, `requires = [\"permit\"]` lets only
## effects be sent that a permit covers (`oncegate permit grant`). A person approves first, always or
## above a bound, with (take away `## `):
";
const ELICITATION: &str = "\
## In place of `by`, `elicitation-from = [\"stdio\", \"token:NAME\"]` has the client that calls ask its person,
## and takes its word for what was answered: through standard input and output, or with that token. It
## trusts the client to show the question and to let no model answer it. A client that answers by itself,
## and whoever can start one or has the token, then approves its own calls; what was answered is on record
## as the client's word. Without it no client's answer counts, and `oncegate ledger approve` is the way.
";
const ENDPOINT: &str = "
## Where requests to this endpoint go (without `url`: to the contract's URL), and your own name for the
## account there, which is part of the key of every effect: never change it for the same account.
## `egress = \"direct\"` is your statement that no proxy or relay can send what this host did not.
";
const DATABASE: &str = "
## A database that is only read. The login, and the role where there is one, must be able to read and
## nothing more: lookups under another are refused, and `oncegate doctor` says why. `rows` and
## `statement-timeout` end what asks for too much.
";
const PASSWORD: &str = "
## Where the login's password is (env:VARIABLE, file:/path or command:program).
";
const CREDENTIAL: &str = "
## Where the secret is (env:VARIABLE, file:/path, command:program or keyring:SERVICE/ACCOUNT) and how it
## is sent.
";
const CONTEXT: &str = "
## Who may set the facts that the contract uses: \"serve\" (--context), \"meta\" (MCP), \"header\" (HTTP).
";
const LIMITS: &str = "
## Limits of each call; these are some of the defaults.
# [limits]
# memory = \"64MiB\"
# wall-time = \"60s\"
# answer-within = \"4s\"
";

pub(super) fn text(description: &Description) -> String {
    let mut text = String::from(HEAD);
    if description.contract.operations.is_empty() {
        text.push_str("##\n## This component declares no operation: it only computes and needs no grant.\n");
    } else {
        component(&mut text, description);
        gates(&mut text, description);
        endpoints(&mut text, description);
        context(&mut text, description);
    }
    text.push_str(LIMITS);
    text
}

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text, $($arg)*); }};
}

fn component(text: &mut String, description: &Description) {
    let contract = &description.contract;
    text.push_str(COMPONENT);
    put!(text, "## {}", safe_text(&contract.component.name));
    put!(text, "# [[component]]");
    put!(text, "# digest = \"{}\"", description.digest_text());
    text.push_str(TENANTS);
    put!(text, "# tenants = [\"main\"]");
    text.push_str(GRANT);
    put!(text, "# grant = [");
    for operation in contract.operations.values() {
        let does = match operation.effect {
            EffectClass::None => "looks up",
            EffectClass::Keyed => "acts",
        };
        put!(
            text,
            "#   {}, # {does}: {} at {}",
            quoted(&operation.name),
            safe_text(&operation.method),
            safe_text(&operation.endpoint),
        );
    }
    put!(text, "# ]");
}

fn gates(text: &mut String, description: &Description) {
    let mut effects = description.contract.operations.values().filter(|one| one.effect == EffectClass::Keyed);
    let Some(operation) = effects.next() else { return };
    text.push_str(GATES);
    put!(text, "## [[approve]]");
    put!(text, "## operation = {}", quoted(&operation.name));
    let is_number = |kind| matches!(kind, ValueKind::Integer | ValueKind::Decimal);
    let bound = operation.fields.iter().find(|field| field.role == Role::Bound && is_number(field.kind));
    if let Some(field) = bound {
        put!(text, "## when = {{ field = {}, above = 10000 }}", quoted(&field.name));
    }
    put!(text, "## by = [\"alice\"]");
    text.push_str(ELICITATION);
}

fn endpoints(text: &mut String, description: &Description) {
    let contract = &description.contract;
    let mut credentials = BTreeSet::new();
    let mut passwords = BTreeSet::new();
    for (name, endpoint) in &contract.endpoints {
        if let Some(kind) = Database::of_url(&endpoint.url) {
            database(text, name, &endpoint.url, kind);
            passwords.extend(endpoint.credential.as_deref());
            continue;
        }
        text.push_str(ENDPOINT);
        put!(text, "# [endpoint.{}]", key(name));
        put!(text, "# url = {}", quoted(&endpoint.url));
        put!(text, "# account = \"main\"");
        put!(text, "# egress = \"relayed\"");
        put!(text, "# allow-private = false");
        credentials.extend(endpoint.credential.as_deref());
    }
    for name in &passwords {
        text.push_str(PASSWORD);
        put!(text, "# [credential.{}]", key(name));
        put!(text, "# from = \"env:{}_PASSWORD\"", variable(name));
        put!(text, "# attach = \"password\"");
    }
    for name in credentials.difference(&passwords) {
        text.push_str(CREDENTIAL);
        let variable = variable(name);
        put!(text, "# [credential.{}]", key(name));
        put!(text, "# from = \"env:{variable}_KEY\"");
        put!(text, "# attach = \"header:Authorization\"");
        put!(text, "# format = \"Bearer {{secret}}\"");
    }
}

fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// What a database needs beside or instead of what a provider needs.
fn database(text: &mut String, name: &str, url: &str, kind: Database) {
    text.push_str(DATABASE);
    put!(text, "# [endpoint.{}]", key(name));
    if kind == Database::Sqlite {
        put!(text, "# file = \"/absolute/path/of/the.db\"");
    } else {
        put!(text, "# url = {}", quoted(url));
        put!(text, "# user = \"a_login_that_can_only_read\"");
        put!(text, "# allow-private = false");
        put!(text, "## The certificate of a private authority: ca = \"/absolute/path/of/ca.pem\"");
    }
    if matches!(kind, Database::Postgres | Database::Mysql) {
        put!(text, "# role = \"a_role_that_can_only_read\"");
    }
    put!(text, "# rows = 1000");
    put!(text, "# statement-timeout = \"5s\"");
}

fn context(text: &mut String, description: &Description) {
    let contract = &description.contract;
    let facts: BTreeSet<&str> = contract
        .tools
        .keys()
        .flat_map(|tool| contract.context_facts(tool))
        .filter(|fact| CONTEXT_FACTS.contains(fact))
        .collect();
    if facts.is_empty() {
        return;
    }
    text.push_str(CONTEXT);
    put!(text, "# [context]");
    for fact in facts {
        put!(text, "# {fact} = [\"serve\"]");
    }
}

/// As a TOML key: bare where it can be.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { name.to_owned() } else { quoted(name) }
}

/// As a TOML string on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => put_escape(&mut quoted, c),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn put_escape(quoted: &mut String, c: char) {
    let _ = write!(quoted, "\\u{:04X}", u32::from(c));
}
