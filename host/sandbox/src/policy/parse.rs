//! The tables of `policy.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_contract::Pointer;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::reader::{Reader, Table};
use super::{
    AccountIs, Attach, CONTEXT_FACTS, ComponentRule, ContextRules, CredentialRule, CredentialSource, EndpointRule,
    Keyring, KeyringStore, Policy, PolicyErrors, Privacy, Retention, Setter,
};
use super::{database, gates, network, signers, units};
use crate::limits::Limits;
use crate::signature::Signatures;

/// Top-level keys of features that this version does not have.
const LATER: [&str; 1] = ["approvers"];
/// The same, in `[[component]]`.
const LATER_COMPONENT: [&str; 2] = ["bounds", "trust-docs"];
/// Headers that say how a message is framed or routed: never a place for a secret.
const FRAMING_HEADERS: [&str; 13] = [
    "accept-encoding",
    "content-type",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
    "user-agent",
];

pub(super) fn parse(file: &str, text: &str) -> Result<Policy, PolicyErrors> {
    let mut reader = Reader::new(file, text);
    let (root, errors) = DeTable::parse_recoverable(text);
    if let Some(first) = errors.first() {
        // Those behind it are mostly what the first one makes of the rest.
        reader.syntax(first);
        return reader.finish(Policy::default());
    }
    let root = Reader::root(root.get_ref());
    let known = [
        "component",
        "signer",
        "endpoint",
        "credential",
        "context",
        "limits",
        "retention",
        "privacy",
        "approve",
        "exclusive",
        "resolver",
    ];
    reader.only(&root, &known, &LATER);
    let signers = signers::read(&mut reader, &root);
    let policy = Policy {
        components: components(&mut reader, &root),
        signers,
        signatures: Signatures::default(),
        endpoints: named(&mut reader, &root, "endpoint", endpoint),
        credentials: named(&mut reader, &root, "credential", credential),
        approvals: gates::approvals(&mut reader, &root),
        exclusives: gates::exclusive_rules(&mut reader, &root),
        context: context(&mut reader, &root),
        limits: limits(&mut reader, &root),
        retention: retention(&mut reader, &root),
        privacy: privacy(&mut reader, &root),
        resolver: network::resolver(&mut reader, &root),
    };
    reader.finish(policy)
}

/// The tables `[kind.NAME]`. One that is wrong is left out: its error is on record.
fn named<'a, T>(
    reader: &mut Reader<'a>,
    root: &Table<'a>,
    kind: &str,
    read: fn(&mut Reader<'a>, &Table<'a>) -> Option<T>,
) -> BTreeMap<String, T> {
    let Some(table) = reader.table(root, kind) else {
        return BTreeMap::new();
    };
    let tables = reader.tables(&table).into_iter();
    tables.filter_map(|(name, table)| Some((name, read(reader, &table)?))).collect()
}

fn components<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<ComponentRule> {
    let tables = reader.list(root, "component").into_iter();
    tables
        .map(|table| {
            reader.only(
                &table,
                &["digest", "signer", "lineage", "tenants", "grant", "requires", "read-answers"],
                &LATER_COMPONENT,
            );
            let digest = reader.string(&table, "digest");
            let digest = digest.and_then(|text| {
                let digest = units::digest_of(text);
                if digest.is_none() {
                    reader.bad(
                        &table,
                        "digest",
                        "expected `sha256:` and 64 hexadecimal digits, as `oncegate inspect` prints it",
                    );
                }
                digest
            });
            ComponentRule {
                line: table.line,
                digest,
                signer: signers::signer_of(reader, root, &table),
                lineage: signers::lineage_of(reader, &table),
                tenants: names(reader, &table, "tenants"),
                grant: names(reader, &table, "grant"),
                requires: gates::requires(reader, &table),
                read_answers: reader.boolean(&table, "read-answers").unwrap_or(false),
            }
        })
        .collect()
}

/// A list that must be there and may hold no wildcard: a grant names what it grants.
fn names<'a>(reader: &mut Reader<'a>, table: &Table<'a>, key: &str) -> Vec<String> {
    if reader.get(table, key).is_none() {
        reader.bad(table, key, "missing; there is no default, name each one");
        return Vec::new();
    }
    let names = reader.strings(table, key).unwrap_or_default();
    for name in &names {
        if oncegate_contract::safe_text(name) != *name {
            reader.bad(
                table,
                key,
                format!("{name:?} is no name: letters, digits and . _ : @ + - only; there are no wildcards"),
            );
        }
    }
    names
}

fn endpoint<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<EndpointRule> {
    let known = ["url", "account", "egress", "allow-private", "account-is", "ca", "proxy", "proxy-credential"];
    reader.only(table, &[&known[..], &database::KEYS].concat(), &[]);
    let url = reader.string(table, "url");
    if let Some(Err(why)) = url.map(|text| database::url(text).unwrap_or_else(|| base_url(text).map(drop))) {
        reader.bad(table, "url", why);
    }
    let account = reader.string(table, "account");
    if account.is_some_and(|name| oncegate_contract::safe_text(name) != name) {
        reader.bad(table, "account", "expected a name of letters, digits and . _ : @ + -");
    }
    let egress_direct = match reader.string(table, "egress") {
        Some("direct") => true,
        None | Some("relayed") => false,
        Some(_) => {
            reader.bad(table, "egress", "expected \"direct\" or \"relayed\"");
            false
        }
    };
    let (proxy, proxy_credential) = network::proxy(reader, table, egress_direct);
    Some(EndpointRule {
        line: table.line,
        ca: network::ca(reader, table),
        proxy,
        proxy_credential,
        url: url.map(str::to_owned),
        account: account.map(str::to_owned),
        egress_direct,
        allow_private: reader.boolean(table, "allow-private").unwrap_or(false),
        account_is: account_is(reader, table),
        database: database::read(reader, table),
    })
}

/// `account-is = { operation = "whoami", at = "/id" }`. What is wrong with it is on record.
fn account_is<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<AccountIs> {
    let inner = reader.table(table, "account-is")?;
    reader.only(&inner, &["operation", "at"], &[]);
    let operation = required(reader, &inner, "operation", |text| Ok(text.to_owned()));
    let at = required(reader, &inner, "at", Pointer::parse);
    Some(AccountIs { operation: operation?, at: at? })
}

/// Whether the text is a URL that a request's path can be put behind.
pub(super) fn base_url(text: &str) -> Result<Url, String> {
    oncegate_contract::check_base_url(text)?;
    Url::parse(text).map_err(|error| format!("not a URL: {error}"))
}

fn credential<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<CredentialRule> {
    reader.only(table, &["from", "attach", "format"], &[]);
    let source = required(reader, table, "from", source);
    let attach = required(reader, table, "attach", attach);
    let format = reader.string(table, "format").unwrap_or("{secret}");
    let once = format.matches("{secret}").count() == 1;
    if !once || format.chars().any(char::is_control) {
        reader.bad(table, "format", "expected one line of text with {secret} in it once, such as \"Bearer {secret}\"");
    }
    Some(CredentialRule { line: table.line, source: source?, attach: attach?, format: format.to_owned() })
}

fn required<'a, T>(
    reader: &mut Reader<'a>,
    table: &Table<'a>,
    key: &str,
    read: fn(&str) -> Result<T, String>,
) -> Option<T> {
    if reader.get(table, key).is_none() {
        reader.bad(table, key, "missing");
        return None;
    }
    match read(reader.string(table, key)?) {
        Ok(value) => Some(value),
        Err(why) => {
            reader.bad(table, key, why);
            None
        }
    }
}

/// Where a secret is.
pub(crate) fn source(text: &str) -> Result<CredentialSource, String> {
    let asked =
        "expected \"env:VARIABLE\", \"file:/path\", \"command:program argument\" or \"keyring:SERVICE/ACCOUNT\"";
    let (kind, rest) = text.split_once(':').ok_or(asked)?;
    let rest = rest.trim();
    match kind {
        _ if rest.is_empty() => Err(asked.into()),
        "env" => Ok(CredentialSource::Env(rest.into())),
        "file" if Path::new(rest).is_absolute() => Ok(CredentialSource::File(PathBuf::from(rest))),
        "file" => Err("expected an absolute path after file:".into()),
        "command" => Ok(CredentialSource::Command(rest.into())),
        "keyring" => keyring(rest).map(CredentialSource::Keyring),
        _ => Err(asked.into()),
    }
}

/// `SERVICE/ACCOUNT`, behind the keyring's name where only one is to be asked.
fn keyring(text: &str) -> Result<Keyring, String> {
    let stores = [("kernel:", KeyringStore::Kernel), ("secret-service:", KeyringStore::SecretService)];
    let named = stores.iter().find_map(|(prefix, store)| Some((*store, text.strip_prefix(prefix)?)));
    let (store, entry) = named.unwrap_or((KeyringStore::Any, text));
    match entry.split_once('/') {
        Some((service, account)) if ![service, account].iter().any(|part| part.is_empty() || part.contains('\0')) => {
            Ok(Keyring { store, service: service.into(), account: account.into() })
        }
        _ => Err("expected \"keyring:SERVICE/ACCOUNT\", or \"keyring:kernel:…\" or \"keyring:secret-service:…\" to ask only one".into()),
    }
}

fn attach(text: &str) -> Result<Attach, String> {
    let asked = "expected \"header:NAME\", or \"password\" for a database";
    if text == "password" {
        return Ok(Attach::Password);
    }
    match text.split_once(':') {
        Some(("header", name)) => {
            let header = http::HeaderName::try_from(name);
            let header = header.map_err(|_| format!("{name:?} is no header name"))?;
            if FRAMING_HEADERS.contains(&header.as_str()) {
                return Err(format!("the header {name} frames or routes a request and cannot carry a secret"));
            }
            Ok(Attach::Header(name.into()))
        }
        Some(("query", _)) => {
            Err("a secret in a query is not in this version, since URLs end up in logs; expected \"header:NAME\""
                .into())
        }
        _ => Err(asked.into()),
    }
}

fn context<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> ContextRules {
    let mut rules = ContextRules::default();
    let Some(table) = reader.table(root, "context") else {
        return rules;
    };
    reader.only(&table, &CONTEXT_FACTS, &[]);
    for fact in CONTEXT_FACTS {
        let Some(names) = reader.strings(&table, fact) else {
            continue;
        };
        let setters = names.iter().map(|name| match name.as_str() {
            "serve" => Some(Setter::Serve),
            "meta" => Some(Setter::Meta),
            "header" => Some(Setter::Header),
            _ => None,
        });
        match setters.collect::<Option<Vec<_>>>() {
            Some(setters) => {
                rules.named.insert(fact.into(), setters);
            }
            None => reader.bad(&table, fact, "expected a list of \"serve\", \"meta\", \"header\""),
        }
    }
    rules
}

/// A limit's value in [`Limits`].
enum Slot<'a> {
    Size(&'a mut usize),
    Time(&'a mut Duration),
    Count(&'a mut u32),
}

fn slots(limits: &mut Limits) -> [(&'static str, Slot<'_>); 23] {
    [
        ("memory", Slot::Size(&mut limits.memory_bytes_max)),
        ("wall-time", Slot::Time(&mut limits.wall_time_max)),
        ("answer-within", Slot::Time(&mut limits.answer_within)),
        ("host-calls", Slot::Count(&mut limits.host_calls_max)),
        ("effects", Slot::Count(&mut limits.effects_max)),
        ("lookups", Slot::Count(&mut limits.lookups_max)),
        ("field", Slot::Size(&mut limits.field_bytes_max)),
        ("request", Slot::Size(&mut limits.request_bytes_max)),
        ("lookup-bytes", Slot::Size(&mut limits.lookup_bytes_max)),
        ("host-call-bytes", Slot::Size(&mut limits.host_call_bytes_max)),
        ("handles", Slot::Count(&mut limits.handles_max)),
        ("random", Slot::Size(&mut limits.random_bytes_max)),
        ("response", Slot::Size(&mut limits.response_bytes_max)),
        ("evidence-max", Slot::Size(&mut limits.evidence_bytes_max)),
        ("result", Slot::Size(&mut limits.result_bytes_max)),
        ("log", Slot::Size(&mut limits.log_bytes_max)),
        ("connect-within", Slot::Time(&mut limits.connect_within)),
        ("request-deadline", Slot::Time(&mut limits.request_deadline)),
        ("idle", Slot::Time(&mut limits.idle_max)),
        ("send-within", Slot::Time(&mut limits.send_within)),
        ("attach", Slot::Time(&mut limits.attach_max)),
        ("elicitation-within", Slot::Time(&mut limits.elicitation_within)),
        ("compile-time", Slot::Time(&mut limits.compile_time_max)),
    ]
}

fn limits<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Limits {
    let mut limits = Limits::default();
    let Some(table) = reader.table(root, "limits") else {
        return limits;
    };
    let slots = slots(&mut limits);
    let known: Vec<&str> = slots.iter().map(|(name, _)| *name).collect();
    reader.only(&table, &known, &[]);
    for (name, slot) in slots {
        let Some((value, _)) = reader.get(&table, name) else {
            continue;
        };
        let asked = match slot {
            Slot::Size(slot) if name == "memory" => set(slot, memory(value), "a size above 0 and at most \"256MiB\""),
            Slot::Size(slot) => set(slot, sized(value), "a size above 0 such as \"64MiB\""),
            Slot::Time(slot) => set(slot, timed(value), "a duration above 0 such as \"30s\" or \"500ms\""),
            Slot::Count(slot) => set(slot, counted(value), "a whole number from 0 to 4294967295"),
        };
        if let Err(asked) = asked {
            reader.bad(&table, name, format!("expected {asked}"));
        }
    }
    limits
}

fn retention<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Retention {
    let mut retention = Retention::default();
    let Some(table) = reader.table(root, "retention") else {
        return retention;
    };
    reader.only(&table, &["replay-window"], &[]);
    if let Some((value, _)) = reader.get(&table, "replay-window") {
        match timed(value) {
            Some(window) => retention.replay_window = window,
            None => reader.bad(&table, "replay-window", "expected a duration above 0 such as \"90d\" or \"12h\""),
        }
    }
    retention
}

fn privacy<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Privacy {
    let Some(table) = reader.table(root, "privacy") else { return Privacy::default() };
    reader.only(&table, &["encrypt", "key-from"], &[]);
    let named = reader.get(&table, "key-from").is_some();
    let key_from = if named { required(reader, &table, "key-from", source) } else { None };
    Privacy { encrypt: reader.boolean(&table, "encrypt").unwrap_or(false), key_from }
}

/// A size that a slot of the pool can hold.
fn memory(value: &DeValue<'_>) -> Option<usize> {
    sized(value).filter(|bytes| *bytes <= crate::engine::MEMORY_BYTES_CEILING)
}

fn set<T>(slot: &mut T, value: Option<T>, asked: &'static str) -> Result<(), &'static str> {
    *slot = value.ok_or(asked)?;
    Ok(())
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn sized(value: &DeValue<'_>) -> Option<usize> {
    let plain = integer(value).and_then(|number| usize::try_from(number).ok());
    let size = plain.or_else(|| value.as_str().and_then(units::size))?;
    (size > 0).then_some(size)
}

fn timed(value: &DeValue<'_>) -> Option<Duration> {
    let duration = value.as_str().and_then(units::duration)?;
    (!duration.is_zero()).then_some(duration)
}

fn counted(value: &DeValue<'_>) -> Option<u32> {
    integer(value).and_then(|number| u32::try_from(number).ok())
}
