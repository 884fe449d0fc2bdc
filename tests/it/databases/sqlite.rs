//! SQLite: a real file that the policy names.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{Asked, NO_ROWS, Reader, all_refused, contract, integer, nothing, sql, text};

/// Makes the file with the SQLite of another program, as an application would.
pub(super) fn library(file: &Path, script: &str) {
    let code =
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.executescript(sys.argv[2])\nc.commit()\nc.close()";
    let made = Command::new("python3").args(["-c", code]).arg(file).arg(script).status().unwrap();
    assert!(made.success());
}

const BOOKS: &str = "CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, price NUMERIC);
    INSERT INTO books VALUES (9007199254740993, 'One', 12.5), (2, 'x'' OR ''1''=''1', NULL);
    CREATE VIEW titles AS SELECT title FROM books;";

const HOSTILE: &[(&str, &str, &[&str])] = &[
    ("insert", "INSERT INTO books VALUES (5, 'x', 1) RETURNING id", &["SQLITE_23"]),
    ("cte", "WITH x AS (SELECT 1) DELETE FROM books RETURNING id", &["SQLITE_23"]),
    ("two", "SELECT 1; DELETE FROM books", &["SQLITE_ONE_STATEMENT", "SQLITE_23"]),
    ("attach", "ATTACH '/tmp/oncegate-stolen' AS o", &["SQLITE_23"]),
    ("vacuum", "VACUUM INTO '/tmp/oncegate-stolen'", &["SQLITE_23", NO_ROWS, "SQLITE_"]),
    ("pragma", "PRAGMA query_only = 0", &["SQLITE_23"]),
    ("pragma-table", "SELECT * FROM pragma_table_info('books')", &["SQLITE_23", "SQLITE_1"]),
    ("extension", "SELECT load_extension('/tmp/x')", &["SQLITE_23", "SQLITE_1"]),
    ("create", "CREATE TEMP TABLE t AS SELECT 1", &["SQLITE_23"]),
    ("begin", "BEGIN IMMEDIATE", &["SQLITE_23"]),
    ("chance", "SELECT random()", &["SQLITE_23", "SQLITE_1"]),
];

#[test]
fn a_file_is_read_and_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("books.db");
    library(&file, BOOKS);
    let before = std::fs::read(&file).unwrap();
    let mut statements: Vec<(&str, String)> = HOSTILE.iter().map(|(name, text, _)| (*name, sql(text))).collect();
    statements.push(("by-id", sql("SELECT * FROM books WHERE id = :id")));
    statements.push(("by-title", sql("SELECT id FROM books WHERE title = :title")));
    statements.push(("titles", sql("SELECT upper(title) AS t FROM titles ORDER BY t")));
    let fields = |name: &str| match name {
        "by-id" => "{ name = \"id\", at = \"bind:id\", type = \"integer\" }",
        "by-title" => "{ name = \"title\", at = \"bind:title\" }",
        _ => "",
    };
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), fields(name))).collect();
    let reader = Reader::new(&contract("sqlite:books", false, &asked), &format!("file = \"{}\"", file.display()));
    let found = reader.one("by-id", integer("id", 9_007_199_254_740_993));
    assert_eq!(
        found,
        json!({ "rows": [{ "id": 9_007_199_254_740_993_i64, "title": "One", "price": 12.5 }], "truncated": false })
    );
    assert_eq!(reader.one("by-title", text("title", "x' OR '1'='1"))["rows"], json!([{ "id": 2 }]));
    assert_eq!(reader.one("by-title", text("title", "' OR 1=1 --"))["rows"], json!([]));
    assert_eq!(reader.one("titles", nothing())["rows"][0], json!({ "t": "ONE" }));
    let expected: Vec<(&str, &[&str])> = HOSTILE.iter().map(|(name, _, codes)| (*name, *codes)).collect();
    all_refused(&reader, &expected);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert!(!Path::new("/tmp/oncegate-stolen").exists());
    let doctor = reader.command(&["doctor", "--json"]).stdout;
    assert!(doctor.contains("database books") && doctor.contains("only reads"), "{doctor}");
    std::os::unix::fs::symlink(&file, folder.path().join("link.db")).unwrap();
    reader.allow(&format!("file = \"{}\"", folder.path().join("link.db").display()));
    assert!(reader.ask(&[("titles", nothing())])[0].contains("not set up"));
}
