//! A real file, and every way that was thought of to change it or to reach another.

use std::time::Duration;

use oncegate_contract::DatabaseAddress;

use super::*;
use crate::egress::Route;
use crate::policy::{DatabaseGrant, DatabaseRule};

fn library(folder: &Path) -> PathBuf {
    let file = folder.join("books.db");
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, price REAL, cover BLOB);
             INSERT INTO books VALUES (1, 'One', 1.5, x'00ff'), (9007199254740993, 'Big', NULL, NULL);",
        )
        .unwrap();
    file
}

fn session(file: PathBuf, within: Duration) -> Session {
    let address = DatabaseAddress::parse("sqlite:books").unwrap();
    let rule = DatabaseRule { file: Some(file), ..DatabaseRule::default() };
    let grant = DatabaseGrant { address, rule, rows_max: 100, within };
    Session { grant, password: None, route: Route::default(), connect_within: within, bytes_max: 1 << 16 }
}

fn ask(file: &Path, text: &str, bound: &[Value]) -> Result<Json, DatabaseError> {
    let bound: Vec<Bound> = bound.iter().map(|value| Bound(Some(value.clone()))).collect();
    let body = read(&session(file.to_owned(), Duration::from_secs(20)), text, &bound)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

#[test]
fn rows_come_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let file = library(folder.path());
    let found = ask(&file, "SELECT * FROM books ORDER BY id", &[]).unwrap();
    assert_eq!(
        found.to_string(),
        r#"{"rows":[{"id":1,"title":"One","price":1.5,"cover":"AP8="},{"id":9007199254740993,"title":"Big","price":null,"cover":null}],"truncated":false}"#
    );
    let hostile = Value::Text("x' OR 1=1; DROP TABLE books; --".to_owned());
    assert_eq!(ask(&file, "SELECT id FROM books WHERE title = ?1", &[hostile]).unwrap()["rows"], serde_json::json!([]));
}

#[test]
fn nothing_is_written_and_no_other_file_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let file = library(folder.path());
    let before = std::fs::read(&file).unwrap();
    let other = folder.path().join("other.db");
    for text in [
        "INSERT INTO books VALUES (3, 'x', 1, NULL) RETURNING id",
        "UPDATE books SET title = 'x' RETURNING id",
        "DELETE FROM books RETURNING id",
        "WITH x AS (SELECT 1) INSERT INTO books SELECT 4, 'x', 1, NULL RETURNING id",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "DROP TABLE books",
        "SELECT 1; DROP TABLE books",
        &format!("ATTACH '{}' AS o", other.display()),
        "VACUUM",
        &format!("VACUUM INTO '{}'", other.display()),
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version",
        "SELECT * FROM pragma_user_version",
        "SELECT load_extension('x')",
        "SELECT writefile('x', 'y')",
        "SELECT readfile('/etc/passwd')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT random()",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT a",
        "REINDEX",
        "ANALYZE",
    ] {
        let refused = ask(&file, text, &[]).unwrap_err();
        assert!(matches!(refused, DatabaseError::Refused { .. } | DatabaseError::NoRows), "{text}: {refused}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert!(!other.exists());
}

#[test]
fn a_long_statement_is_stopped_and_many_rows_are_capped() {
    let folder = tempfile::tempdir().unwrap();
    let file = library(folder.path());
    let forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let stopped = read(&session(file.clone(), Duration::from_millis(50)), forever, &[]);
    assert!(matches!(stopped, Err(DatabaseError::TimedOut)));
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT i FROM n";
    let found = ask(&file, many, &[]).unwrap();
    assert_eq!((found["rows"].as_array().unwrap().len(), &found["truncated"]), (100, &Json::Bool(true)));
}

#[test]
fn a_link_and_a_file_of_everybody_are_not_opened() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = library(folder.path());
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(matches!(ask(&link, "SELECT 1", &[]), Err(DatabaseError::NotSetUp(_))));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(ask(&file, "SELECT 1", &[]), Err(DatabaseError::NotSetUp(_))));
    assert!(matches!(ask(&folder.path().join("none.db"), "SELECT 1", &[]), Err(DatabaseError::NotSetUp(_))));
}
