//! PostgreSQL: the extended protocol, a read-only transaction, a portal that stops at the cap.
//!
//! Preparing takes one statement only; what its description has no columns for is not run. The rights of
//! the login are examined in the same transaction, which also gives it its snapshot: from then on the
//! server lets nobody make it a writing one.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures_core::Stream;
use oncegate_contract::{Database, Statement};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, IsolationLevel, NoTls, Portal, Transaction};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::rows::Rows;
use super::{DatabaseError, RoleFinding, Session, Values, only_reads, reach};
use crate::causes::chain;
use values::{Bound, column};

mod exam;
mod values;

/// How long the server may take to say good-bye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// Rows of the first round; how large they are tells how many the next may bring.
const FIRST_ROWS: usize = 8;
/// Server settings that end what takes too long; one that a server does not have is left out.
const TIMEOUTS: &str = "SELECT pg_catalog.set_config(name, $1, true) FROM pg_catalog.pg_settings WHERE name IN \
    ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')";

/// What is done in the transaction.
enum Work<'a> {
    Ask(&'a Statement, &'a Values<'a>),
    Examine,
}

/// What came of it.
enum Done {
    Answer(Vec<u8>),
    Findings(Vec<RoleFinding>),
}

pub(super) async fn ask(
    session: &Session,
    statement: &Statement,
    values: &Values<'_>,
) -> Result<Vec<u8>, DatabaseError> {
    match run(session, Work::Ask(statement, values)).await? {
        Done::Answer(body) => Ok(body),
        Done::Findings(_) => Err(DatabaseError::NoRows),
    }
}

pub(super) async fn examine(session: &Session) -> Result<Vec<RoleFinding>, DatabaseError> {
    match run(session, Work::Examine).await? {
        Done::Findings(found) => Ok(found),
        Done::Answer(_) => Ok(Vec::new()),
    }
}

async fn run(session: &Session, work: Work<'_>) -> Result<Done, DatabaseError> {
    let rule = &session.grant.rule;
    let mut config = Config::new();
    config.user(rule.user.clone().unwrap_or_default());
    config.dbname(&session.grant.address.database);
    config.application_name("oncegate");
    if let Some(password) = &session.password {
        config.password(password.expose_secret());
    }
    let stream = reach::connect(session).await?;
    let within = session.connect_within;
    let late = |_| DatabaseError::Unreachable("the login was not over in time".to_owned());
    if rule.plain {
        config.ssl_mode(SslMode::Disable);
        let (client, connection) =
            timeout(within, config.connect_raw(stream, NoTls)).await.map_err(late)?.map_err(login)?;
        return converse(client, connection, session, work).await;
    }
    config.ssl_mode(SslMode::Require);
    let mut tls = MakeRustlsConnect::new((*reach::tls(session).await?).clone());
    let tls = MakeTlsConnect::<reach::Capped>::make_tls_connect(&mut tls, &session.grant.address.host)
        .map_err(|error| DatabaseError::NotSetUp(error.to_string()))?;
    let (client, connection) = timeout(within, config.connect_raw(stream, tls)).await.map_err(late)?.map_err(login)?;
    converse(client, connection, session, work).await
}

/// Works while the connection is driven, and ends it.
async fn converse<S, T>(
    mut client: Client,
    connection: Connection<S, T>,
    session: &Session,
    work: Work<'_>,
) -> Result<Done, DatabaseError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = pin!(connection);
    let done = tokio::select! {
        biased;
        done = transaction(&mut client, session, work) => done,
        ended = &mut connection => {
            let why = ended.err().map_or_else(|| "the server ended the connection".to_owned(), |error| chain(&error));
            return Err(DatabaseError::Unreachable(why));
        }
    };
    drop(client);
    // The end is a courtesy; what is read is read.
    if let Ok(Err(error)) = timeout(GOODBYE_WITHIN, connection).await {
        tracing::debug!(%error, "a connection to PostgreSQL did not end as it should");
    }
    done
}

async fn transaction(client: &mut Client, session: &Session, work: Work<'_>) -> Result<Done, DatabaseError> {
    client.batch_execute("SET default_transaction_read_only = on").await.map_err(refused)?;
    let begin = client.build_transaction().read_only(true).isolation_level(IsolationLevel::RepeatableRead);
    let transaction = begin.start().await.map_err(refused)?;
    let millis = session.grant.within.as_millis().to_string();
    let set = transaction.query(TIMEOUTS, &[&millis]).await.map_err(refused)?;
    if set.is_empty() {
        return Err(DatabaseError::NotSetUp("the server has no statement_timeout".to_owned()));
    }
    let findings = exam::findings(&transaction, session.grant.rule.role.as_deref()).await?;
    let done = match work {
        Work::Examine => Done::Findings(findings),
        Work::Ask(statement, values) => {
            only_reads(&findings)?;
            if let Some(role) = &session.grant.rule.role {
                transaction.batch_execute(&format!("SET LOCAL ROLE {}", quoted(role))).await.map_err(refused)?;
            }
            Done::Answer(read(&transaction, session, statement, values).await?)
        }
    };
    transaction.rollback().await.map_err(refused)?;
    Ok(done)
}

async fn read(
    transaction: &Transaction<'_>,
    session: &Session,
    statement: &Statement,
    values: &Values<'_>,
) -> Result<Vec<u8>, DatabaseError> {
    let (text, names) = statement.written(Database::Postgres);
    let prepared = transaction.prepare(&text).await.map_err(refused)?;
    if prepared.columns().is_empty() {
        return Err(DatabaseError::NoRows);
    }
    let columns: Vec<String> = prepared.columns().iter().map(|column| column.name().to_owned()).collect();
    let rows_max = session.grant.rows_max;
    let mut rows = Rows::new(columns, rows_max, session.bytes_max)?;
    let bound: Vec<Bound> = names.iter().map(|name| Bound::of(values.get(name).copied().flatten())).collect();
    let portal = transaction.bind_raw(&prepared, bound.iter().map(Bound::as_sql)).await.map_err(refused)?;
    // One more than is kept, so that it is known whether there is more.
    let mut left = usize::try_from(rows_max).unwrap_or(usize::MAX).saturating_add(1);
    let (mut wanted, mut largest) = (left.min(FIRST_ROWS), 1);
    while wanted > 0 {
        let (came, goes_on) = fetch(transaction, &portal, wanted, &mut rows, &mut largest).await?;
        left -= came;
        // Never more at once than fits, by the largest row so far: the server sends all that is asked for.
        wanted = if goes_on { left.min((session.bytes_max / largest).max(1)) } else { 0 };
    }
    Ok(rows.finish())
}

/// Takes so many rows from a portal: how many came, and whether there may be more that is wanted.
async fn fetch(
    transaction: &Transaction<'_>,
    portal: &Portal,
    wanted: usize,
    rows: &mut Rows,
    largest: &mut usize,
) -> Result<(usize, bool), DatabaseError> {
    let most = i32::try_from(wanted).unwrap_or(i32::MAX);
    let mut stream = pin!(transaction.query_portal_raw(portal, most).await.map_err(refused)?);
    let mut came = 0;
    while let Some(row) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
        let row = row.map_err(refused)?;
        came += 1;
        *largest = row.raw_size_bytes().max(*largest);
        let types = row.columns().iter().enumerate();
        let values = types.map(|(at, known)| column(&row, at, known.type_())).collect::<Result<Vec<_>, _>>()?;
        if !rows.push(values) {
            return Ok((came, false));
        }
    }
    Ok((came, came == wanted))
}

/// As an identifier of SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The server's refusal; a failure of the connection is no refusal.
fn refused(error: tokio_postgres::Error) -> DatabaseError {
    let Some(said) = error.as_db_error() else {
        return DatabaseError::Unreachable(chain(&error));
    };
    let code = said.code().code();
    match (code, DatabaseError::refused(code, said.message())) {
        // query_canceled and lock_not_available: its own time-outs.
        ("57014" | "55P03", _) => DatabaseError::TimedOut,
        // Class 22, data exception: a value that does not read as what the statement compares it with.
        (code, DatabaseError::Refused { code: shown, message }) if code.starts_with("22") => {
            DatabaseError::Value { code: shown, message }
        }
        (_, other) => other,
    }
}

/// A refused login is the operator's to mend.
fn login(error: tokio_postgres::Error) -> DatabaseError {
    match error.as_db_error() {
        Some(said) => DatabaseError::refused(said.code().code(), said.message()).of_login(),
        None => DatabaseError::Unreachable(chain(&error)),
    }
}
