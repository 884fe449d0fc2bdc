//! What the operator says about a database: who logs in, under which role, how much it may answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_contract::{Database, DatabaseAddress, safe_text};

use super::decide::route;
use super::reader::{Reader, Table};
use super::{Attach, CredentialUse, EndpointRule, Policy, units};
use crate::egress::Route;

/// Keys of `[endpoint.NAME]` that are about databases.
pub(super) const KEYS: [&str; 10] = [
    "user",
    "role",
    "credential",
    "file",
    "tls",
    "rows",
    "statement-timeout",
    "role-checked",
    "read-concern",
    "auth-database",
];

/// Rows of one answer unless the policy says otherwise: a model reads far fewer.
const ROWS_DEFAULT: u32 = 1_000;
/// Most rows that a policy can allow: as many as a settle rule looks through.
const ROWS_MAX: u32 = 10_000;
/// How long a statement may run unless the policy says otherwise; a lookup by an index takes milliseconds.
const STATEMENT_WITHIN: Duration = Duration::from_secs(5);
/// Longest time that a policy can allow: a call is over after a minute.
const STATEMENT_WITHIN_MAX: Duration = Duration::from_secs(60);

/// The keys about databases of one `[endpoint.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseRule {
    /// Who logs in.
    pub user: Option<String>,
    /// The role that is taken on after that.
    pub role: Option<String>,
    /// The credential that has the password, where the contract's endpoint is not at hand.
    pub credential: Option<String>,
    /// The file of a SQLite database.
    pub file: Option<PathBuf>,
    /// `tls = "off"`: nothing is encrypted; only to private addresses.
    pub plain: bool,
    /// `role-checked = false`: a document database whose server cannot say what the role may do.
    pub unchecked: bool,
    /// Rows of one answer.
    pub rows: Option<u32>,
    /// How long a statement may run.
    pub within: Option<Duration>,
    /// The read concern of document lookups.
    pub read_concern: Option<String>,
    /// Where a document database knows the user from; `admin` unless it says otherwise.
    pub auth_database: Option<String>,
}

/// The database of a granted operation. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseGrant {
    /// Where it is.
    pub address: DatabaseAddress,
    /// What the policy says about it.
    pub rule: DatabaseRule,
    /// Rows of one answer.
    pub rows_max: u32,
    /// How long a statement may run.
    pub within: Duration,
}

impl DatabaseGrant {
    /// Under whom statements run, in words.
    #[must_use]
    pub fn runs_as(&self) -> String {
        match (&self.rule.user, &self.rule.role) {
            (_, Some(role)) => format!("the role {role}"),
            (Some(user), None) => format!("the user {user}"),
            (None, None) => "nobody in particular".to_owned(),
        }
    }

    /// How it is reached, in words.
    #[must_use]
    pub fn reached(&self) -> String {
        match (&self.rule.file, self.rule.plain) {
            (Some(file), _) => format!("the file {}", file.display()),
            (None, true) => "not encrypted, at a private address".to_owned(),
            (None, false) => "encrypted".to_owned(),
        }
    }
}

/// Reads the keys of one endpoint. What is wrong is on record.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> DatabaseRule {
    let rule = DatabaseRule {
        user: name(reader, table, "user"),
        role: name(reader, table, "role"),
        credential: name(reader, table, "credential"),
        file: path(reader, table, "file"),
        plain: word(reader, table, "tls", &[("required", false), ("off", true)]),
        unchecked: reader.boolean(table, "role-checked") == Some(false),
        rows: rows(reader, table),
        within: within(reader, table),
        read_concern: concern(reader, table),
        auth_database: name(reader, table, "auth-database"),
    };
    let server = ["user", "role", "credential", "ca", "tls", "role-checked", "read-concern", "auth-database"];
    if rule.file.is_some() {
        for key in server.into_iter().filter(|key| reader.get(table, key).is_some()).collect::<Vec<_>>() {
            reader.bad(table, key, "a database in a file has no login, no encryption and no role");
        }
    }
    rule
}

fn name<'a>(reader: &mut Reader<'a>, table: &Table<'a>, key: &str) -> Option<String> {
    let text = reader.string(table, key)?;
    if text.is_empty() || safe_text(text) != text {
        reader.bad(table, key, "expected a name of letters, digits and . _ : @ + -");
        return None;
    }
    Some(text.to_owned())
}

fn path<'a>(reader: &mut Reader<'a>, table: &Table<'a>, key: &str) -> Option<PathBuf> {
    let text = reader.string(table, key)?;
    if !Path::new(text).is_absolute() {
        reader.bad(table, key, "expected an absolute path");
        return None;
    }
    Some(PathBuf::from(text))
}

fn word<'a>(reader: &mut Reader<'a>, table: &Table<'a>, key: &str, words: &[(&str, bool)]) -> bool {
    let Some(text) = reader.string(table, key) else { return false };
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        reader.bad(table, key, format!("expected {}", known.join(" or ")));
    }
    found.unwrap_or(false)
}

fn rows<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<u32> {
    let (value, _) = reader.get(table, "rows")?;
    let number = value.as_integer().and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
    let number = number.filter(|number| (1..=ROWS_MAX).contains(number));
    if number.is_none() {
        reader.bad(table, "rows", format!("expected a whole number from 1 to {ROWS_MAX}"));
    }
    number
}

fn within<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<Duration> {
    let text = reader.string(table, "statement-timeout")?;
    let found = units::duration(text).filter(|time| !time.is_zero() && *time <= STATEMENT_WITHIN_MAX);
    if found.is_none() {
        reader.bad(table, "statement-timeout", "expected a duration above 0 and at most 60s, such as \"5s\"");
    }
    found
}

fn concern<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<String> {
    let text = reader.string(table, "read-concern")?;
    if !["local", "available", "majority", "linearizable"].contains(&text) {
        reader.bad(table, "read-concern", "expected \"local\", \"available\", \"majority\" or \"linearizable\"");
        return None;
    }
    Some(text.to_owned())
}

/// The URL of an endpoint in a policy, when it is a database's.
pub(super) fn url(text: &str) -> Option<Result<(), String>> {
    Database::of_url(text).map(|_| DatabaseAddress::parse(text).map(drop))
}

/// A database that a policy names, as far as the policy alone tells.
#[derive(Debug, Clone)]
pub struct NamedDatabase {
    /// The endpoint's name.
    pub name: String,
    /// Where it is and who logs in.
    pub grant: DatabaseGrant,
    /// The password's place.
    pub credential: Option<CredentialUse>,
    /// By which way it is reached.
    pub route: Route,
}

/// Every database that the policy itself says enough about; for another, its name and why not.
pub(super) fn named(policy: &Policy) -> Vec<Result<NamedDatabase, (String, String)>> {
    let databases =
        policy.endpoints.iter().filter_map(|(name, endpoint)| Some((name, endpoint, told(name, endpoint)?)));
    databases
        .map(|(name, endpoint, url)| {
            let credential = password(policy, name, endpoint);
            let grant = grant(name, endpoint, &url, credential.as_ref()).map_err(|why| (name.clone(), why))?;
            let grant = grant.ok_or_else(|| (name.clone(), "it is no database".to_owned()))?;
            let route = route(policy, endpoint).map_err(|why| (name.clone(), why))?;
            Ok(NamedDatabase { name: name.clone(), grant, credential, route })
        })
        .collect()
}

/// The URL of a database that the policy names; a file needs none.
fn told(name: &str, endpoint: &EndpointRule) -> Option<String> {
    match (&endpoint.url, &endpoint.database.file) {
        (Some(url), _) => Database::of_url(url).map(|_| url.clone()),
        (None, Some(_)) => Some(format!("sqlite:{name}")),
        (None, None) => None,
    }
}

/// The credential that the endpoint names, or the one that is called as it is.
fn password(policy: &Policy, name: &str, endpoint: &EndpointRule) -> Option<CredentialUse> {
    let called = endpoint.database.credential.as_deref().unwrap_or(name);
    let rule = policy.credentials.get(called).filter(|rule| rule.attach == Attach::Password)?;
    Some(rule.usage(called))
}

/// What the policy grants at the database of `declared`; none when that is no database.
///
/// # Errors
/// What the policy lacks or contradicts.
pub(super) fn grant(
    name: &str,
    endpoint: &EndpointRule,
    declared: &str,
    credential: Option<&CredentialUse>,
) -> Result<Option<DatabaseGrant>, String> {
    let Some(kind) = Database::of_url(declared) else { return Ok(None) };
    let url = endpoint.url.as_deref().unwrap_or(declared);
    let address = DatabaseAddress::parse(url).map_err(|why| format!("the URL of the endpoint {name}: {why}"))?;
    if address.kind != kind {
        return Err(format!("[endpoint.{name}] names {}; the contract asks {}", address.kind.name(), kind.name()));
    }
    let rule = endpoint.database.clone();
    login(name, kind, &rule, credential)?;
    if endpoint.proxy.is_some() {
        return Err(format!("[endpoint.{name}] has a `proxy`; {} is reached directly or not at all", kind.name()));
    }
    if rule.plain && !endpoint.allow_private {
        return Err(format!("[endpoint.{name}] has `tls = \"off\"`, which goes only with `allow-private = true`"));
    }
    if rule.unchecked && kind != Database::Mongodb {
        return Err(format!(
            "[endpoint.{name}] has `role-checked = false`; {} can say what a role may do",
            kind.name()
        ));
    }
    let rows_max = rule.rows.unwrap_or(ROWS_DEFAULT);
    let within = rule.within.unwrap_or(STATEMENT_WITHIN);
    Ok(Some(DatabaseGrant { address, rule, rows_max, within }))
}

/// A server needs somebody to log in as, and a file does not.
fn login(name: &str, kind: Database, rule: &DatabaseRule, credential: Option<&CredentialUse>) -> Result<(), String> {
    if kind == Database::Sqlite {
        return match (&rule.file, credential) {
            (None, _) => Err(format!("[endpoint.{name}] has no `file`: the path of the database")),
            (_, Some(_)) => Err(format!("the contract gives {name} a credential; a file has none")),
            (Some(_), None) => Ok(()),
        };
    }
    if rule.file.is_some() {
        return Err(format!("[endpoint.{name}] has a `file`; {} is a server", kind.name()));
    }
    if rule.user.is_none() && !rule.unchecked {
        return Err(format!("[endpoint.{name}] has no `user`: who logs in, with rights to read and nothing more"));
    }
    match credential {
        Some(usage) if usage.attach != Attach::Password => {
            Err(format!("[credential.{}] is for {}: `attach = \"password\"`", usage.name, kind.name()))
        }
        Some(usage) if rule.credential.as_ref().is_some_and(|named| *named != usage.name) => {
            Err(format!("[endpoint.{name}] names another credential than {}, which the contract names", usage.name))
        }
        None if rule.credential.is_some() => {
            Err(format!("[endpoint.{name}] names a credential, and the contract's endpoint names none"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
