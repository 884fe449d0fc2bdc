//! MySQL and MariaDB: a prepared statement in a read-only transaction of a login that can only read.
//!
//! Preparing takes one statement only; what its description has no columns for is not run. The driver
//! lives in a runtime of its own that ends with the lookup: an answer that was cut is not read on.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, SslOpts, Value as Sql};
use oncegate_contract::{Database, Statement, Value};
use secrecy::ExposeSecret;

use super::rows::Rows;
use super::{DatabaseError, RoleFinding, Session, Values, blocking, only_reads, reach};

mod grants;
mod values;

/// Bytes of one packet at least: a login and a description need some.
const PACKET_BYTES_MIN: usize = 1 << 20;
/// Seconds that a connection may be idle; it is gone long before.
const IDLE_SECONDS: usize = 60;

pub(super) async fn ask(
    session: &Session,
    statement: &Statement,
    values: &Values<'_>,
) -> Result<Vec<u8>, DatabaseError> {
    let (text, names) = statement.written(Database::Mysql);
    let bound: Vec<Sql> = names.iter().map(|name| bound(values.get(name).copied().flatten())).collect();
    let addresses = reach::addresses(session).await?;
    let owned = session.clone();
    let asks = statement.begins_as_select();
    blocking::drive(session.patience(), move || async move {
        let mut connection = connect(&owned, addresses).await?;
        only_reads(&prepare(&mut connection, &owned).await?)?;
        let (answer, whole) = read(&mut connection, &owned, (&text, asks), bound).await?;
        // Behind a cut answer the server would first send the rest: losing the connection rolls back as well.
        if whole {
            connection.query_drop("ROLLBACK").await.map_err(refused)?;
        }
        Ok(answer)
    })
    .await
}

pub(super) async fn examine(session: &Session) -> Result<Vec<RoleFinding>, DatabaseError> {
    let addresses = reach::addresses(session).await?;
    let owned = session.clone();
    blocking::drive(session.patience(), move || async move {
        let mut connection = connect(&owned, addresses).await?;
        prepare(&mut connection, &owned).await
    })
    .await
}

/// Connects to the checked addresses and to no other; the name is for the certificate.
async fn connect(session: &Session, addresses: Vec<std::net::SocketAddr>) -> Result<Conn, DatabaseError> {
    let address = &session.grant.address;
    let rule = &session.grant.rule;
    let ips: Vec<_> = addresses.iter().map(std::net::SocketAddr::ip).collect();
    let mut opts = OptsBuilder::default()
        .ip_or_hostname(address.host.clone())
        .resolved_ips(Some(ips))
        .tcp_port(address.port)
        .user(rule.user.clone())
        .pass(session.password.as_ref().map(|password| password.expose_secret().to_owned()))
        // A local socket would be another way to the server than the one that was checked.
        .prefer_socket(false)
        .max_allowed_packet(Some(session.bytes_max.max(PACKET_BYTES_MIN)))
        .wait_timeout(Some(IDLE_SECONDS))
        .stmt_cache_size(0)
        .enable_cleartext_plugin(false);
    if !rule.plain {
        // Read here already, so that a file that is none is told as what it is.
        reach::tls(session).await?;
        // The driver takes the process's own; a second call finds it there, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = match &session.route.ca {
            Some(file) => {
                SslOpts::default().with_root_certs(vec![file.clone().into()]).with_disable_built_in_roots(true)
            }
            None => SslOpts::default(),
        };
        opts = opts.ssl_opts(tls);
    }
    let connecting = tokio::time::timeout(session.connect_within, Conn::new(Opts::from(opts)));
    let late = |_| DatabaseError::Unreachable("the login was not over in time".to_owned());
    connecting.await.map_err(late)?.map_err(login)
}

/// Takes on the role, examines the login and opens the read-only transaction.
async fn prepare(connection: &mut Conn, session: &Session) -> Result<Vec<RoleFinding>, DatabaseError> {
    if let Some(role) = &session.grant.rule.role {
        let role = format!("SET ROLE `{}`", role.replace('`', "``"));
        connection.query_drop(role).await.map_err(login)?;
    }
    // Only now: a login may see the database by its role alone.
    let database = format!("USE `{}`", session.grant.address.database.replace('`', "``"));
    connection.query_drop(database).await.map_err(login)?;
    let lines: Vec<String> = connection.query("SHOW GRANTS").await.map_err(refused)?;
    let version: Option<String> = connection.query_first("SELECT VERSION()").await.map_err(refused)?;
    let within = session.grant.within;
    let timeout = match version.is_some_and(|version| version.contains("MariaDB")) {
        true => format!("max_statement_time = {}", within.as_secs_f64()),
        false => format!("max_execution_time = {}", within.as_millis()),
    };
    // Both kinds of lock wait take whole seconds.
    let seconds = within.as_secs().max(1);
    let rows = u64::from(session.grant.rows_max) + 1;
    let settings = format!(
        "SET SESSION {timeout}, lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds}, \
         time_zone = '+00:00', sql_select_limit = {rows}"
    );
    for command in [settings.as_str(), "SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY"] {
        connection.query_drop(command).await.map_err(refused)?;
    }
    Ok(grants::findings(&lines))
}

/// The answer, and whether all of it was read.
async fn read(
    connection: &mut Conn,
    session: &Session,
    (text, asks): (&str, bool),
    bound: Vec<Sql>,
) -> Result<(Vec<u8>, bool), DatabaseError> {
    let prepared = connection.prep(text).await.map_err(refused)?;
    let columns = prepared.columns();
    // What gives rows without selecting shows the server itself: SHOW GRANTS has the hash of the password.
    if columns.is_empty() || !asks {
        return Err(DatabaseError::NoRows);
    }
    let names = columns.iter().map(|column| column.name_str().into_owned()).collect();
    let mut rows = Rows::new(names, session.grant.rows_max, session.bytes_max)?;
    let params = if bound.is_empty() { Params::Empty } else { Params::Positional(bound) };
    let mut found = connection.exec_iter(&prepared, params).await.map_err(refused)?;
    while let Some(row) = found.next().await.map_err(refused)? {
        let kinds = row.columns();
        let values = kinds.iter().zip(row.unwrap()).map(|(column, value)| values::column(column, value));
        if !rows.push(values.collect::<Result<Vec<_>, _>>()?) {
            return Ok((rows.finish(), false));
        }
    }
    Ok((rows.finish(), true))
}

/// A bound value; one that is absent is NULL.
fn bound(value: Option<&Value>) -> Sql {
    match value {
        None => Sql::NULL,
        Some(Value::Text(text) | Value::Decimal(text)) => Sql::Bytes(text.clone().into_bytes()),
        Some(Value::Integer(number)) => Sql::Int(*number),
        Some(Value::Boolean(truth)) => Sql::Int(i64::from(*truth)),
        Some(Value::Json(json)) => Sql::Bytes(json.to_string().into_bytes()),
        Some(Value::Bytes(bytes)) => Sql::Bytes(bytes.clone()),
    }
}

/// Codes of the server by which a time-out ended the statement, or a lock was not had.
const TIMED_OUT: [u16; 5] = [1205, 1317, 1969, 3024, 3572];
/// Codes for a value that does not read as what it is compared with.
const BAD_VALUE: [u16; 3] = [1292, 1366, 1525];

fn refused(error: mysql_async::Error) -> DatabaseError {
    let mysql_async::Error::Server(said) = &error else { return DatabaseError::Unreachable(error.to_string()) };
    match (said.code, DatabaseError::refused(&said.code.to_string(), &said.message)) {
        (code, _) if TIMED_OUT.contains(&code) => DatabaseError::TimedOut,
        (code, DatabaseError::Refused { code: shown, message }) if BAD_VALUE.contains(&code) => {
            DatabaseError::Value { code: shown, message }
        }
        (_, other) => other,
    }
}

/// A refused login is the operator's to mend.
fn login(error: mysql_async::Error) -> DatabaseError {
    refused(error).of_login()
}
