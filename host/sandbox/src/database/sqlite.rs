//! SQLite: a file that policy names, opened to read, under an authoriser that knows four deeds.
//!
//! Each wall holds by itself: the file is opened read-only, `query_only` is set, and the authoriser denies
//! all but selecting, reading, recursion and functions on a list.

use std::path::{Path, PathBuf};
use std::time::Instant;

use oncegate_contract::{Database, Statement, Value};
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use serde_json::Value as Json;

use super::rows::{self, Rows};
use super::{DatabaseError, RoleFinding, Session, Values, blocking};

/// Steps of the virtual machine between two looks at the clock: some tens of microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 1_000;
/// Compound selects and depth of expressions; a reviewer reads no deeper.
const COMPOUND_MAX: i32 = 50;
const DEPTH_MAX: i32 = 200;
/// Bytes of a pattern; long ones take quadratic time.
const PATTERN_BYTES_MAX: i32 = 1_000;
/// Bytes of one value at least, however little an answer may have: sorting needs some.
const VALUE_BYTES_MIN: usize = 1 << 16;

/// Functions that only compute, the same each time. No clock, no chance, no files, no extensions.
const FUNCTIONS: &[&str] = &[
    "->",
    "->>",
    "abs",
    "avg",
    "ceil",
    "ceiling",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "date",
    "datetime",
    "dense_rank",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_type",
    "json_valid",
    "julianday",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "printf",
    "quote",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "time",
    "total",
    "trim",
    "typeof",
    "unhex",
    "unicode",
    "unixepoch",
    "upper",
];

pub(super) async fn ask(
    session: &Session,
    statement: &Statement,
    values: &Values<'_>,
) -> Result<Vec<u8>, DatabaseError> {
    let (text, names) = statement.written(Database::Sqlite);
    let bound: Vec<Bound> = names.iter().map(|name| Bound(values.get(name).copied().flatten().cloned())).collect();
    let session = session.clone();
    blocking::run(move || read(&session, &text, &bound)).await
}

/// Whether the file can be opened and read now.
pub(super) async fn examine(session: &Session) -> Result<Vec<RoleFinding>, DatabaseError> {
    let session = session.clone();
    blocking::run(move || read(&session, "SELECT count(*) FROM sqlite_schema", &[])).await?;
    Ok(Vec::new())
}

fn read(session: &Session, text: &str, bound: &[Bound]) -> Result<Vec<u8>, DatabaseError> {
    let mut connection = open(session)?;
    let until = Instant::now() + session.grant.within;
    connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() >= until)).map_err(refused)?;
    connection.authorizer(Some(allowed)).map_err(refused)?;
    let mut prepared = connection.prepare(text).map_err(refused)?;
    if prepared.column_count() == 0 || !prepared.readonly() {
        return Err(DatabaseError::NoRows);
    }
    let columns: Vec<String> = prepared.column_names().map(str::to_owned).collect();
    let count = columns.len();
    let mut rows = Rows::new(columns, session.grant.rows_max, session.bytes_max)?;
    let mut found = prepared.query(rusqlite::params_from_iter(bound)).map_err(refused)?;
    while let Some(row) = found.next().map_err(refused)? {
        let values = (0..count).map(|at| column(row.get_ref(at).map_err(refused)?)).collect::<Result<Vec<_>, _>>()?;
        if !rows.push(values) {
            break;
        }
    }
    Ok(rows.finish())
}

/// Opens the policy's file, read-only in every way that SQLite knows.
fn open(session: &Session) -> Result<Connection, DatabaseError> {
    let file = session.grant.rule.file.clone().unwrap_or_default();
    plain_file(&file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(&file, flags).map_err(refused)?;
    connection.busy_timeout(session.grant.within).map_err(refused)?;
    connection.pragma_update(None, "query_only", true).map_err(refused)?;
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE, false),
    ] {
        connection.set_db_config(setting, on).map_err(refused)?;
    }
    let value = i32::try_from(session.bytes_max.max(VALUE_BYTES_MIN)).unwrap_or(i32::MAX);
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, value),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, COMPOUND_MAX),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, DEPTH_MAX),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most).map_err(refused)?;
    }
    Ok(connection)
}

/// A plain file that not everybody may write: what it holds feeds keys.
fn plain_file(file: &Path) -> Result<(), DatabaseError> {
    use std::os::unix::fs::PermissionsExt;
    let wrong = |why: &str| DatabaseError::NotSetUp(format!("{} is not used: {why}", file.display()));
    let about = std::fs::symlink_metadata(file).map_err(|error| wrong(&error.to_string()))?;
    if !about.is_file() {
        return Err(wrong("it is no plain file"));
    }
    if about.permissions().mode() & 0o002 != 0 {
        return Err(wrong("everybody may write to it"));
    }
    let journal = PathBuf::from(format!("{}-journal", file.display()));
    match std::fs::symlink_metadata(&journal) {
        Ok(about) if about.len() > 0 && !about.is_file() => Err(wrong("its journal is no plain file")),
        _ => Ok(()),
    }
}

/// The authoriser.
fn allowed(context: AuthContext<'_>) -> Authorization {
    let is_listed = |name: &str| FUNCTIONS.iter().any(|known| known.eq_ignore_ascii_case(name));
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if is_listed(function_name) => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

/// A bound value; one that is absent is NULL.
struct Bound(Option<Value>);

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(match &self.0 {
            None => Owned::Null,
            Some(Value::Text(text) | Value::Decimal(text)) => Owned::Text(text.clone()),
            Some(Value::Integer(number)) => Owned::Integer(*number),
            Some(Value::Boolean(truth)) => Owned::Integer(i64::from(*truth)),
            Some(Value::Json(json)) => Owned::Text(json.to_string()),
            Some(Value::Bytes(bytes)) => Owned::Blob(bytes.clone()),
        }))
    }
}

/// A value by its own storage class: a file has no other types.
fn column(value: ValueRef<'_>) -> Result<Json, DatabaseError> {
    match value {
        ValueRef::Null => Ok(Json::Null),
        ValueRef::Integer(number) => Ok(number.into()),
        ValueRef::Real(number) => Ok(rows::float(number)),
        ValueRef::Text(text) => rows::text(text),
        ValueRef::Blob(bytes) => Ok(rows::bytes(bytes)),
    }
}

fn refused(error: rusqlite::Error) -> DatabaseError {
    use rusqlite::ErrorCode;
    match &error {
        rusqlite::Error::SqliteFailure(about, _) if about.code == ErrorCode::OperationInterrupted => {
            DatabaseError::TimedOut
        }
        rusqlite::Error::SqliteFailure(about, _) | rusqlite::Error::SqlInputError { error: about, .. } => {
            DatabaseError::refused(&format!("SQLITE_{}", about.extended_code), &error.to_string())
        }
        rusqlite::Error::MultipleStatement => DatabaseError::refused("SQLITE_ONE_STATEMENT", &error.to_string()),
        _ => DatabaseError::Unusable(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
