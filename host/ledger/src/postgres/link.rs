//! One connection, what its server must promise, and what an error of it means.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::target::Target;
use crate::LedgerError;

/// How long an answer may take. What is not answered by then has an outcome that is not known.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// An open connection.
pub(super) struct Link {
    client: Client,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// How often the server said that a commit may not be where it should be.
    warned: Arc<AtomicU64>,
    driver: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why a statement has no result, by what is known of it then.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was taken back whole: something is not as it expected.
    Stale,
    /// It was taken back whole: asked again, it may succeed.
    Again,
    /// It was taken back whole, and asking again does not help.
    Refused(LedgerError),
    /// Nobody knows whether it was committed.
    Lost(String),
}

impl Failure {
    /// As the answer to a question that changes nothing.
    pub(super) fn of_reading(self) -> LedgerError {
        match self {
            Failure::Refused(error) => error,
            Failure::Stale => LedgerError::unavailable("the database divided by zero"),
            Failure::Again => LedgerError::unavailable("the database was too busy"),
            Failure::Lost(why) => LedgerError::unavailable(why),
        }
    }
}

/// What is needed of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Write,
    Read,
}

impl Link {
    /// Connects, and refuses a server that may lose what it acknowledges.
    ///
    /// # Errors
    /// `Unavailable`, without a word of the password.
    pub(super) async fn open(target: &Target, purpose: Use) -> Result<Link, LedgerError> {
        let link = match timeout(ANSWER_WITHIN, connect(target)).await {
            Ok(link) => link?,
            Err(_) => return Err(LedgerError::unavailable("the database did not answer")),
        };
        if purpose == Use::Write {
            link.refuse_if_it_may_lose_commits().await?;
        }
        Ok(link)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs one statement, alone in its transaction. It is prepared once for a connection.
    pub(super) async fn run(&self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        let statement = self.prepare(sql).await?;
        answered(self.client.query(&statement, values)).await
    }

    /// Prepares a statement, so that running it is one exchange.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, Failure> {
        let known = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = answered(self.client.prepare(sql)).await?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs several statements without values in one transaction.
    pub(super) async fn run_all(&self, sql: &str) -> Result<(), Failure> {
        answered(self.client.batch_execute(sql)).await
    }

    /// Rises when the server says that it gave up waiting for a standby. It says so before it answers.
    pub(super) fn warnings(&self) -> u64 {
        self.warned.load(Ordering::SeqCst)
    }

    /// Refuses a server that may lose what it acknowledges, and a copy that cannot be written. A setting that the
    /// server does not know does not apply to it.
    async fn refuse_if_it_may_lose_commits(&self) -> Result<(), LedgerError> {
        const ASKED: &str = "SELECT pg_is_in_recovery(), current_setting('fsync', true), \
            current_setting('full_page_writes', true), current_setting('synchronous_commit', true), \
            current_setting('transaction_read_only', true)";
        let rows = self.run(ASKED, &[]).await.map_err(Failure::of_reading)?;
        let row = rows.first().ok_or_else(|| LedgerError::unavailable("the database says nothing of itself"))?;
        let setting = |at: usize| row.try_get::<_, Option<String>>(at).ok().flatten();
        let found = Durability {
            copy: row.try_get(0).unwrap_or(true),
            fsync: setting(1),
            full_page_writes: setting(2),
            synchronous_commit: setting(3),
            read_only: setting(4),
        };
        found.judge()?;
        let Some(commit) = found.synchronous_commit else { return Ok(()) };
        // Kept for this session, whatever somebody sets for the server meanwhile.
        self.run("SELECT set_config('synchronous_commit', $1, false)", &[&commit])
            .await
            .map_err(Failure::of_reading)?;
        Ok(())
    }
}

/// What a server says of how it keeps commits.
struct Durability {
    copy: bool,
    fsync: Option<String>,
    full_page_writes: Option<String>,
    synchronous_commit: Option<String>,
    read_only: Option<String>,
}

impl Durability {
    fn judge(&self) -> Result<(), LedgerError> {
        let is = |setting: &Option<String>, value: &str| setting.as_deref() == Some(value);
        let refused = |why: &str| Err(LedgerError::unavailable(why));
        if self.copy {
            return refused("the server is a read replica; give the URL of the primary");
        }
        if is(&self.fsync, "off") {
            return refused("the server runs with fsync = off and may lose what it acknowledged");
        }
        if is(&self.full_page_writes, "off") {
            return refused("the server runs with full_page_writes = off and may not survive a crash");
        }
        if is(&self.synchronous_commit, "off") || is(&self.synchronous_commit, "local") {
            return refused("synchronous_commit is off or local for this login: commits may be lost; set it to on");
        }
        if is(&self.read_only, "on") {
            return refused("this login or server only reads (default_transaction_read_only)");
        }
        Ok(())
    }
}

async fn connect(target: &Target) -> Result<Link, LedgerError> {
    let failed = |error: tokio_postgres::Error| LedgerError::unavailable(said(&error));
    let warned = Arc::new(AtomicU64::new(0));
    let (client, driver) = match &target.tls {
        None => {
            let (client, connection) = target.config.connect(NoTls).await.map_err(failed)?;
            (client, tokio::spawn(drive(connection, Arc::clone(&warned))))
        }
        Some(tls) => {
            let tls = MakeRustlsConnect::new((**tls).clone());
            let (client, connection) = target.config.connect(tls).await.map_err(failed)?;
            (client, tokio::spawn(drive(connection, Arc::clone(&warned))))
        }
    };
    Ok(Link { client, prepared: Mutex::default(), warned, driver })
}

/// Moves bytes until the connection ends, and counts what the server warns of.
async fn drive<S, T>(mut connection: Connection<S, T>, warned: Arc<AtomicU64>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) if is_lost_wait(&notice) => {
                warned.fetch_add(1, Ordering::SeqCst);
                tracing::error!(notice = notice.message(), "the database does not vouch for a commit");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(why = said(&error), "a connection to the database ended");
                return;
            }
        }
    }
}

/// A wait for a synchronous standby that was cancelled ends with a warning and success. Its words are in the
/// server's language, so any warning of these two classes counts.
fn is_lost_wait(notice: &DbError) -> bool {
    let class = *notice.code() == SqlState::WARNING || *notice.code() == SqlState::ADMIN_SHUTDOWN;
    class && notice.parsed_severity() == Some(Severity::Warning)
}

async fn answered<T>(asked: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(meaning(&error)),
        Err(_) => Err(Failure::Lost("the database did not answer in time".to_owned())),
    }
}

fn meaning(error: &tokio_postgres::Error) -> Failure {
    let Some(said_by_server) = error.as_db_error() else {
        return Failure::Lost(said(error));
    };
    let fatal = !matches!(said_by_server.parsed_severity(), Some(Severity::Error));
    let code = said_by_server.code().code();
    match code {
        // statement_completion_unknown; class 08, connection exception; class 57, operator intervention.
        "40003" => Failure::Lost(said(error)),
        code if code.starts_with("08") || code.starts_with("57") => Failure::Lost(said(error)),
        "40001" | "40P01" => Failure::Again,
        _ if fatal => Failure::Lost(said(error)),
        // division_by_zero is how our statements say that something is not as expected; unique_violation how a
        // table says it.
        "22012" | "23505" => Failure::Stale,
        "53100" => Failure::Refused(LedgerError::Full { why: said(error) }),
        _ => Failure::Refused(LedgerError::unavailable(said(error))),
    }
}

/// Whether the server says that a table is not there.
pub(super) fn is_no_table(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(LedgerError::Unavailable { why }) if why.contains("(42P01)"))
}

/// Whether the server says that a table is there already.
pub(super) fn is_table_there(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(LedgerError::Unavailable { why }) if why.contains("(42P07)"))
}

/// Whether the server lets us only read.
pub(super) fn is_read_only(failure: &Failure) -> bool {
    let codes = ["(25006)", "(42501)"];
    matches!(failure, Failure::Refused(LedgerError::Unavailable { why }) if codes.iter().any(|code| why.contains(code)))
}

/// An error with its causes. The driver's errors never hold the password.
fn said(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    if let Some(error) = error.as_db_error() {
        return format!("the database says: {} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    format!("the database cannot be reached: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_lose_a_commit_is_refused() {
        let sound = || Durability {
            copy: false,
            fsync: Some("on".into()),
            full_page_writes: Some("on".into()),
            synchronous_commit: Some("on".into()),
            read_only: Some("off".into()),
        };
        assert!(sound().judge().is_ok());
        assert!(Durability { synchronous_commit: Some("remote_apply".into()), ..sound() }.judge().is_ok());
        let other = Durability { fsync: None, full_page_writes: None, synchronous_commit: None, ..sound() };
        assert!(other.judge().is_ok(), "an engine without these settings has no such switch");
        for bad in [
            Durability { copy: true, ..sound() },
            Durability { fsync: Some("off".into()), ..sound() },
            Durability { full_page_writes: Some("off".into()), ..sound() },
            Durability { synchronous_commit: Some("off".into()), ..sound() },
            Durability { synchronous_commit: Some("local".into()), ..sound() },
            Durability { read_only: Some("on".into()), ..sound() },
        ] {
            assert!(bad.judge().is_err());
        }
    }
}
