//! Document databases: `find` and `aggregate` as the contract wrote them, values bound as scalars.
//!
//! There are no read-only transactions there; a login can read and nothing more, which is asked of the
//! server before each lookup, and no other command than the two is ever sent for a contract. The driver
//! speaks to a socket of ours that leads to the one checked address, and all of it ends with the lookup.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, Credential, ServerAddress};
use mongodb::{Client, Database};
use oncegate_contract::Documents;
use secrecy::ExposeSecret;
use serde_json::{Map, Value as Json};

use super::rows::Rows;
use super::{DatabaseError, RoleFinding, Session, Values, blocking, only_reads};
use relay::Relay;

mod question;
mod relay;
mod rights;
mod values;

/// Where the server knows a user from unless the policy says otherwise.
const AUTH_DATABASE: &str = "admin";
/// How long the driver looks for the server behind our own socket.
const SELECT_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn ask(
    session: &Session,
    documents: &Documents,
    values: &Values<'_>,
) -> Result<Vec<u8>, DatabaseError> {
    let command = question::command(&session.grant, documents, values)?;
    let owned = session.clone();
    blocking::drive(session.patience(), move || async move {
        let relay = Relay::open(&owned).await?;
        let database = connect(&owned, &relay)?;
        only_reads(&rights(&owned, &database).await?)?;
        let answer = database.run_command(command).await.map_err(refused)?;
        rows(&owned, answer)
    })
    .await
}

pub(super) async fn examine(session: &Session) -> Result<Vec<RoleFinding>, DatabaseError> {
    let owned = session.clone();
    blocking::drive(session.patience(), move || async move {
        let relay = Relay::open(&owned).await?;
        let database = connect(&owned, &relay)?;
        rights(&owned, &database).await
    })
    .await
}

/// A client of the one address: no discovery of others, no second try, one connection for commands.
fn connect(session: &Session, relay: &Relay) -> Result<Database, DatabaseError> {
    let rule = &session.grant.rule;
    let credential = rule.user.as_ref().map(|user| {
        let source = rule.auth_database.clone().unwrap_or_else(|| AUTH_DATABASE.to_owned());
        let password = session.password.as_ref().map(|password| password.expose_secret().to_owned());
        Credential::builder().username(user.clone()).password(password).source(source).build()
    });
    let options = ClientOptions::builder()
        .hosts(vec![ServerAddress::Unix { path: relay.socket().to_owned() }])
        .app_name("oncegate".to_owned())
        .credential(credential)
        .direct_connection(true)
        .max_pool_size(1)
        .retry_reads(false)
        .retry_writes(false)
        .server_selection_timeout(SELECT_WITHIN.max(session.connect_within))
        .connect_timeout(session.connect_within)
        .build();
    let client = Client::with_options(options).map_err(|error| DatabaseError::NotSetUp(error.to_string()))?;
    Ok(client.database(&session.grant.address.database))
}

/// What the login can do, by the server's own word.
async fn rights(session: &Session, database: &Database) -> Result<Vec<RoleFinding>, DatabaseError> {
    if session.grant.rule.unchecked {
        let what = "the policy does not have its login checked: only the closed list of commands holds it".to_owned();
        // One round trip, so that a server that is not there is told as that.
        database.run_command(doc! { "ping": 1 }).await.map_err(login)?;
        return Ok(vec![RoleFinding { refused: false, what }]);
    }
    let status = doc! { "connectionStatus": 1, "showPrivileges": true };
    let status = database.run_command(status).await.map_err(login)?;
    Ok(rights::findings(&status, &session.grant.address.database))
}

/// The documents of the first batch; what is behind it is cut.
fn rows(session: &Session, answer: Document) -> Result<Vec<u8>, DatabaseError> {
    let broken = |_| DatabaseError::Unusable("the server's answer has no batch".to_owned());
    let cursor = answer.get_document("cursor").map_err(broken)?;
    let batch = cursor.get_array("firstBatch").map_err(broken)?;
    let mut rows = Rows::new(Vec::new(), session.grant.rows_max, session.bytes_max)?;
    for one in batch {
        let Bson::Document(document) = one else {
            return Err(DatabaseError::Unusable("the server's answer holds something else than documents".to_owned()));
        };
        let row = document.iter().map(|(name, value)| Ok((name.clone(), values::json(value)?)));
        if !rows.push_object(row.collect::<Result<Map<String, Json>, DatabaseError>>()?) {
            break;
        }
    }
    // A cursor that is still open has more; it ends with the connection's session.
    if !matches!(cursor.get("id"), Some(Bson::Int64(0) | Bson::Int32(0))) {
        rows.cut();
    }
    Ok(rows.finish())
}

/// The server's codes for a time that is over.
const TIMED_OUT: [i32; 3] = [50, 262, 89];
/// The codes for a login that is refused, or lacks a right that every login has.
const LOGIN: [i32; 2] = [18, 13];

fn refused(error: mongodb::error::Error) -> DatabaseError {
    match error.kind.as_ref() {
        ErrorKind::Command(said) if TIMED_OUT.contains(&said.code) => DatabaseError::TimedOut,
        ErrorKind::Command(said) => DatabaseError::refused(&said.code.to_string(), &said.message),
        ErrorKind::Authentication { message, .. } => {
            DatabaseError::NotSetUp(format!("the login was refused: {message}"))
        }
        other => DatabaseError::Unreachable(other.to_string()),
    }
}

fn login(error: mongodb::error::Error) -> DatabaseError {
    match error.kind.as_ref() {
        ErrorKind::Command(said) if LOGIN.contains(&said.code) => {
            DatabaseError::NotSetUp(format!("the login was refused, with code {}", said.code))
        }
        _ => refused(error),
    }
}
