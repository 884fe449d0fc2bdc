//! Lookups in databases: what is asked is the contract's constant text, what is bound are values, and
//! that nothing is written is the server's doing.
//!
//! Every lookup has a connection of its own, to an address that was checked, under a login whose rights
//! were examined on it, in a read-only transaction that is rolled back; then the connection is gone.
//! Nothing here looks at a statement to guess what it does.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_contract::{Answer, Database, Operation, Query, Resolved, Value, bound_values};
use secrecy::SecretString;
use tokio::time::timeout;

use crate::egress::Route;
use crate::host::{Host, digest};
use crate::lookup::{Found, secret};
use crate::policy::{CredentialUse, DatabaseGrant, Grant, Policy};
use crate::stop::Stop;

mod blocking;
mod documents;
mod mysql;
mod postgres;
mod reach;
mod rows;
mod sqlite;

/// Over and above connecting and the statement's own time: examining the login, and good-byes.
const AROUND: Duration = Duration::from_secs(5);
/// Bytes of an answer beside its rows.
const FRAME_BYTES: usize = 256;
/// Characters of a server's message that are logged.
const MESSAGE_CHARS_MAX: usize = 300;

/// Why a database gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It cannot be reached, or may not be.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The login can do more than read, or nobody can say what it can do.
    #[error("the login is not used for lookups: {0}")]
    Role(String),
    /// The server refused.
    #[error("the database refused, with code {code}: {message}")]
    Refused {
        /// The server's code.
        code: String,
        /// The server's words, shortened.
        message: String,
    },
    /// The server cannot read a bound value as what it is compared with.
    #[error("the database cannot read a bound value, with code {code}: {message}")]
    Value {
        /// The server's code.
        code: String,
        /// The server's words, shortened.
        message: String,
    },
    /// By the server's own parse it gives no rows.
    #[error("the database says that the statement gives no rows, so it is no lookup")]
    NoRows,
    /// It took too long.
    #[error("the database did not answer in time")]
    TimedOut,
    /// The answer cannot be passed on exactly.
    #[error("the answer cannot be passed on: {0}")]
    Unusable(String),
    /// What the operator set up is missing something.
    #[error("{0}")]
    NotSetUp(String),
}

impl DatabaseError {
    /// Of a server's code and message; the message may quote a bound value, never a password.
    fn refused(code: &str, message: &str) -> Self {
        let code = oncegate_contract::safe_text(code);
        let message = message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
        Self::Refused { code, message }
    }

    /// The same of a login, which is the operator's to mend.
    fn of_login(self) -> Self {
        match self {
            Self::Refused { code, message } => {
                Self::NotSetUp(format!("the login was refused, with code {code}: {message}"))
            }
            other => other,
        }
    }

    /// What the guest hears; causes and addresses are for the log.
    fn stop(&self) -> Stop {
        match self {
            Self::Refused { code, .. } => Stop::Unavailable(format!("the database refused, with code {code}")),
            Self::Value { code, .. } => {
                Stop::InvalidField(format!("the database cannot read a bound value, with code {code}"))
            }
            Self::Role(_) | Self::NotSetUp(_) => {
                Stop::NotSetUp("the database's login is not set up for lookups".to_owned())
            }
            Self::NoRows | Self::TimedOut => Stop::Unavailable(self.to_string()),
            Self::Unusable(_) => Stop::Unavailable("the database's answer cannot be passed on exactly".to_owned()),
            Self::Unreachable(_) => Stop::Unavailable("the database could not be reached".to_owned()),
        }
    }
}

/// What one lookup, or an examination, needs to know.
#[derive(Clone)]
struct Session {
    grant: DatabaseGrant,
    password: Option<SecretString>,
    route: Route,
    connect_within: Duration,
    bytes_max: usize,
}

type Values<'a> = BTreeMap<&'a str, Option<&'a Value>>;

/// Asks a database and keeps the answer as a provider's answer is kept.
#[allow(clippy::too_many_arguments, reason = "as `lookup::send`, and the two parts that make it a database's")]
pub(crate) async fn send(
    host: &Host,
    operation: &Operation,
    query: &Query,
    grant: &Grant,
    database: &DatabaseGrant,
    resolved: &Resolved,
    tenant: &str,
    bytes_max: usize,
) -> Result<Found, Stop> {
    let values = bound_values(operation, resolved).map_err(crate::call::field_stop)?;
    let secret = secret(grant).await?;
    let limits = &host.policy.limits;
    let room = bytes_max.min(limits.response_bytes_max).min(limits.evidence_bytes_max);
    let session = Session {
        grant: database.clone(),
        password: secret.as_ref().map(crate::credential::Credential::password),
        route: grant.route.clone(),
        connect_within: limits.connect_within,
        bytes_max: room.saturating_sub(FRAME_BYTES),
    };
    let asked = timeout(session.patience(), session.ask(query, &values)).await;
    let body = asked.unwrap_or(Err(DatabaseError::TimedOut)).map_err(|error| {
        tracing::warn!(operation = %operation.name, %error, "a lookup in a database gave no answer");
        error.stop()
    })?;
    // No row and no guest ever holds the secret, as with any other lookup.
    let body = match &secret {
        Some(secret) => secret.scrub_bytes(body),
        None => body,
    };
    Ok(Found { raw: raw(&body), answer: answer(body), digest: identity(tenant, grant, operation, query, &values) })
}

/// The answer in the form in which all lookups are kept.
fn raw(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn answer(body: Vec<u8>) -> Answer {
    let headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        ("content-length".to_owned(), body.len().to_string().into_bytes()),
    ];
    Answer { status: 200, headers, body, complete: true }
}

/// Who asked what of whom: another statement, value, login or database is another question.
fn identity(tenant: &str, grant: &Grant, operation: &Operation, query: &Query, values: &Values<'_>) -> [u8; 32] {
    let database = grant.database.as_ref();
    let role = database.map(DatabaseGrant::runs_as).unwrap_or_default();
    let file = database.and_then(|found| found.rule.file.as_ref()).map(|file| file.display().to_string());
    let said = format!("{:?}", (&operation.method, &operation.path.text, query.lines()));
    let file = file.unwrap_or_default();
    let mut parts = vec![tenant, &grant.account, &grant.url, &role, &file, &said].into_iter().map(str::to_owned);
    let mut all: Vec<String> = parts.by_ref().collect();
    for (name, value) in values {
        let (kind, text) = value.map_or(("none", String::new()), |value| (value.type_name(), value.canonical()));
        all.extend([(*name).to_owned(), kind.to_owned(), text]);
    }
    digest(&all.iter().map(String::as_bytes).collect::<Vec<_>>())
}

impl Session {
    /// Nothing takes longer than this, whatever a server does.
    fn patience(&self) -> Duration {
        self.connect_within + self.grant.within + AROUND
    }

    async fn ask(&self, query: &Query, values: &Values<'_>) -> Result<Vec<u8>, DatabaseError> {
        match (self.grant.address.kind, query) {
            (Database::Postgres, Query::Sql(statement)) => postgres::ask(self, statement, values).await,
            (Database::Mysql, Query::Sql(statement)) => mysql::ask(self, statement, values).await,
            (Database::Sqlite, Query::Sql(statement)) => sqlite::ask(self, statement, values).await,
            (Database::Mongodb, Query::Documents(documents)) => documents::ask(self, documents, values).await,
            (kind, _) => Err(DatabaseError::NotSetUp(format!("{} is not asked in that way", kind.name()))),
        }
    }

    async fn examine(&self) -> Result<Vec<RoleFinding>, DatabaseError> {
        match self.grant.address.kind {
            Database::Postgres => postgres::examine(self).await,
            Database::Mysql => mysql::examine(self).await,
            Database::Sqlite => sqlite::examine(self).await,
            Database::Mongodb => documents::examine(self).await,
        }
    }
}

/// What an examination of a login found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleFinding {
    /// Whether lookups are refused for it.
    pub refused: bool,
    /// What the login can do.
    pub what: String,
}

/// What the login of a policy's database can do, found by logging in.
///
/// # Errors
/// [`DatabaseError`] when it cannot be reached or logged in to.
pub async fn examine(
    grant: &DatabaseGrant,
    credential: Option<&CredentialUse>,
    route: &Route,
    policy: &Policy,
) -> Result<Vec<RoleFinding>, DatabaseError> {
    let password = match credential {
        None => None,
        Some(usage) => {
            let read = crate::credential::Credential::read(usage).await;
            Some(read.map_err(|error| DatabaseError::NotSetUp(error.to_string()))?.password())
        }
    };
    let limits = &policy.limits;
    let session = Session {
        grant: grant.clone(),
        password,
        route: route.clone(),
        connect_within: limits.connect_within,
        bytes_max: limits.response_bytes_max,
    };
    timeout(session.patience(), session.examine()).await.unwrap_or(Err(DatabaseError::TimedOut))
}

/// Stops a lookup whose login can do more than read.
fn only_reads(findings: &[RoleFinding]) -> Result<(), DatabaseError> {
    let refused: Vec<&str> = findings.iter().filter(|one| one.refused).map(|one| one.what.as_str()).collect();
    if refused.is_empty() { Ok(()) } else { Err(DatabaseError::Role(refused.join("; "))) }
}

#[cfg(test)]
mod tests;
