//! MariaDB: a real server, and its own refusals.

use oncegate_tests::databases::mariadb::Mariadb;
use serde_json::{Value, json};

use super::postgres::until;
use super::{Asked, INJECTIONS, NO_ROWS, PASSWORD, Reader, all_refused, contract, integer, nothing, sql, text};

const BOOKS: &str = r"
CREATE DATABASE NAME; USE NAME;
CREATE TABLE books (id BIGINT UNSIGNED PRIMARY KEY, title VARCHAR(200), price DECIMAL(20,4), added TIMESTAMP(3) NULL,
  at DATETIME NULL, day DATE, hour TIME, cover VARBINARY(10), flags BIT(3), weight DOUBLE, small TINYINT) CHARACTER SET utf8mb4;
SET time_zone = '+02:00';
INSERT INTO books VALUES (18446744073709551615, 'One', 12345678901234.5600, '2026-01-02 03:04:05.678', '2026-01-02 03:04:05',
  '2026-01-02', '-10:20:30', x'00ff', b'101', 0.5, -3);
INSERT INTO books (id, title) VALUES (2, 'Two'), (3, 'x'' OR ''1''=''1');
CREATE TABLE vault (secret TEXT); INSERT INTO vault VALUES ('hidden');
CREATE SEQUENCE seq;
CREATE FUNCTION sneak() RETURNS INT SQL SECURITY DEFINER MODIFIES SQL DATA
  BEGIN INSERT INTO books (id, title) VALUES (666, 'sneaked'); RETURN 1; END;
CREATE PROCEDURE wipe() SQL SECURITY DEFINER DELETE FROM books;
CREATE USER 'reader_NAME'@'%' IDENTIFIED BY 'PASSWORD'; GRANT SELECT ON NAME.books TO 'reader_NAME'@'%';
CREATE USER 'runner_NAME'@'%' IDENTIFIED BY 'PASSWORD'; GRANT SELECT, EXECUTE ON NAME.* TO 'runner_NAME'@'%';
CREATE USER 'writer_NAME'@'%' IDENTIFIED BY 'PASSWORD'; GRANT SELECT, INSERT ON NAME.books TO 'writer_NAME'@'%';
CREATE ROLE role_NAME; GRANT SELECT ON NAME.books TO role_NAME;
CREATE USER 'member_NAME'@'%' IDENTIFIED BY 'PASSWORD'; GRANT role_NAME TO 'member_NAME'@'%'; GRANT USAGE ON NAME.* TO 'member_NAME'@'%'";

fn database(name: &str) -> &'static Mariadb {
    let server = Mariadb::shared().unwrap();
    // The client splits at every semicolon but those of another delimiter.
    let body = "BEGIN INSERT INTO books (id, title) VALUES (666, 'sneaked'); RETURN 1; END;";
    let text = BOOKS.replace(body, "BEGIN INSERT INTO books (id, title) VALUES (666, 'sneaked'); RETURN 1; END //");
    let (before, after) = text.split_once("CREATE FUNCTION").unwrap();
    let (function, after) = after.split_once("//").unwrap();
    let fill = |text: &str| text.replace("NAME", name).replace("PASSWORD", PASSWORD);
    server.run(&fill(before)).unwrap();
    server.run(&fill(&format!("USE NAME;\nDELIMITER //\nCREATE FUNCTION{function}//\nDELIMITER ;\n"))).unwrap();
    server.run(&fill(&format!("USE NAME; {after}"))).unwrap();
    server
}

fn policy(server: &Mariadb, name: &str, lines: &str) -> String {
    format!(
        "url = \"{}\"\nallow-private = true\nca = \"{}\"\n{lines}\n[credential.books]\nfrom = \"env:BOOKS_KEY\"\nattach = \"password\"",
        server.url(name),
        server.authority().display()
    )
}

fn reader(server: &Mariadb, name: &str, asked: &[Asked<'_>], lines: &str) -> Reader {
    Reader::new(&contract("mysql://db.example/books", true, asked), &policy(server, name, lines))
}

#[test]
fn rows_come_exactly_and_values_are_only_values() {
    let server = database("m_rows");
    let by_id = sql("SELECT * FROM books WHERE small = :small");
    let by_title = sql("SELECT id FROM books WHERE title = :title AND title = :title ORDER BY id");
    let asked = [
        ("by-small", by_id.as_str(), "{ name = \"small\", at = \"bind:small\", type = \"integer\" }"),
        ("by-title", by_title.as_str(), "{ name = \"title\", at = \"bind:title\" }"),
    ];
    let reader = reader(server, "m_rows", &asked, "user = \"reader_m_rows\"");
    let wanted = json!({
        "id": 18_446_744_073_709_551_615_u64, "title": "One", "price": "12345678901234.5600",
        "added": "2026-01-02T01:04:05.678Z", "at": "2026-01-02T03:04:05", "day": "2026-01-02", "hour": "-10:20:30",
        "cover": "AP8=", "flags": "BQ==", "weight": 0.5, "small": -3,
    });
    assert_eq!(reader.one("by-small", integer("small", -3)), json!({ "rows": [wanted], "truncated": false }));
    let questions: Vec<(&str, Value)> = INJECTIONS.iter().map(|one| ("by-title", text("title", one))).collect();
    for answer in reader.ask(&questions) {
        assert_eq!(answer, r#"{"rows":[],"truncated":false}"#);
    }
    assert_eq!(reader.one("by-title", text("title", "x' OR '1'='1"))["rows"], json!([{ "id": 3 }]));
    reader.allow(&policy(server, "m_rows", "user = \"member_m_rows\"\nrole = \"role_m_rows\""));
    assert_eq!(reader.one("by-title", text("title", "Two"))["rows"], json!([{ "id": 2 }]));
    reader.keeps_no_password();
}

const HOSTILE: &[(&str, &str, &[&str])] = &[
    ("insert", "INSERT INTO books (id) VALUES (5) RETURNING id", &["1142"]),
    ("delete", "DELETE FROM books RETURNING id", &["1142"]),
    ("update", "UPDATE books SET title = 'x'", &["1142", NO_ROWS]),
    ("two", "SELECT 1; DELETE FROM books", &["1064"]),
    ("cte", "WITH x AS (INSERT INTO books (id) VALUES (5) RETURNING id) SELECT id FROM x", &["1064"]),
    ("outfile", "SELECT * FROM books INTO OUTFILE '/tmp/oncegate-stolen'", &["1045", "1227", NO_ROWS]),
    ("variable", "SELECT title FROM books INTO @v", &[NO_ROWS]),
    ("next", "SELECT NEXT VALUE FOR seq", &["1792"]),
    ("definer", "SELECT sneak()", &["1792"]),
    ("call", "CALL wipe()", &["1370", NO_ROWS]),
    ("analyze", "ANALYZE FORMAT=JSON DELETE FROM books", &["1142"]),
    ("others", "SELECT secret FROM vault", &["1142"]),
    ("create", "CREATE TABLE stolen (a INT)", &["1142", NO_ROWS]),
    ("temporary", "CREATE TEMPORARY TABLE t AS SELECT 1 AS a", &["1044", "1142", NO_ROWS]),
    ("set-global", "SET GLOBAL read_only = 0", &["1227", NO_ROWS]),
    ("set", "SET SESSION TRANSACTION READ WRITE", &[NO_ROWS]),
    ("commit", "COMMIT", &[NO_ROWS]),
    ("start", "START TRANSACTION READ WRITE", &[NO_ROWS]),
    ("load", "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE books", &["1295", "1142", NO_ROWS]),
    ("immediate", "EXECUTE IMMEDIATE 'DELETE FROM books'", &["1295", "1142", NO_ROWS]),
    ("grants", "SHOW GRANTS", &[NO_ROWS]),
    ("lock", "LOCK TABLES books WRITE", &["1295", "1142", "1044", NO_ROWS]),
];

#[test]
fn what_would_write_fails_at_the_server() {
    let server = database("m_hostile");
    let statements: Vec<(&str, String)> = HOSTILE.iter().map(|(name, text, _)| (*name, sql(text))).collect();
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let reader = reader(server, "m_hostile", &asked, "user = \"reader_m_hostile\"");
    let state = || {
        server
            .run("CHECKSUM TABLE m_hostile.books, m_hostile.vault; SHOW TABLES FROM m_hostile; SELECT next_not_cached_value FROM m_hostile.seq")
            .unwrap()
    };
    let before = state();
    let expected: Vec<(&str, &[&str])> = HOSTILE.iter().map(|(name, _, codes)| (*name, *codes)).collect();
    all_refused(&reader, &expected);
    assert_eq!(state(), before);
    assert!(!std::path::Path::new("/tmp/oncegate-stolen").exists());
}

#[test]
fn logins_that_can_do_more_are_refused_and_doctor_says_why() {
    let server = database("m_roles");
    let statements = [("first", sql("SELECT min(id) AS id FROM books")), ("sneak", sql("SELECT sneak() AS a"))];
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let reader = reader(server, "m_roles", &asked, "user = \"reader_m_roles\"");
    assert_eq!(reader.one("first", nothing())["rows"], json!([{ "id": 2 }]));
    let doctor = reader.command(&["doctor", "--json"]);
    assert!(doctor.stdout.contains("the user reader_m_roles, and it only reads"), "{}", doctor.stdout);
    for (login, why) in [("writer_m_roles", "it may INSERT on"), ("runner_m_roles", "it may EXECUTE on")] {
        reader.allow(&policy(server, "m_roles", &format!("user = \"{login}\"")));
        let run = reader.run(&[("first", nothing()), ("sneak", nothing())], false);
        assert!(run.stdout.contains("not set up for lookups") && run.stderr.contains(why), "{login}: {run:?}");
        let doctor = reader.command(&["doctor", "--json"]);
        assert!(doctor.stdout.contains(why), "{login}: {}", doctor.stdout);
    }
    assert_eq!(server.run("SELECT count(*) FROM m_roles.books").unwrap(), "3");
    // The same call in a read-only transaction of a login that may make it: the server's own refusal.
    let refused = server.run("USE m_roles; START TRANSACTION READ ONLY; SELECT sneak()").unwrap_err().to_string();
    assert!(refused.contains("1792"), "{refused}");
}

#[test]
fn a_slow_statement_is_stopped_at_the_server_and_many_rows_are_capped() {
    let server = database("m_slow");
    server.run("GRANT SELECT ON m_slow.* TO 'reader_m_slow'@'%'").unwrap();
    let statements = [
        ("sleep", sql("SELECT SLEEP(3600)")),
        ("million", sql("SELECT seq FROM seq_1_to_1000000")),
        ("own-limit", sql("SELECT seq FROM seq_1_to_10000000 LIMIT 9000000")),
        ("wide", sql("SELECT REPEAT('x', 300000) AS a FROM seq_1_to_1000")),
        ("huge", sql("SELECT REPEAT('x', 12000000) AS a")),
        ("twice", sql("SELECT 1 AS a, 2 AS a")),
    ];
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let lines = "user = \"reader_m_slow\"\nstatement-timeout = \"3s\"\nrows = 50";
    let reader = reader(server, "m_slow", &asked, lines);
    let questions: Vec<(&str, Value)> = statements.iter().map(|(name, _)| (*name, nothing())).collect();
    let answers = reader.ask(&questions);
    assert!(answers[0].contains("did not answer in time") || answers[0].contains(":1"), "{answers:?}");
    for (answer, rows) in [(&answers[1], 50), (&answers[2], 50), (&answers[3], 3)] {
        let found: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!((found["rows"].as_array().unwrap().len(), &found["truncated"]), (rows, &json!(true)));
    }
    assert!(answers[5].starts_with("error: "), "{}", answers[5]);
    let whole = serde_json::from_str::<Value>(&answers[4]);
    assert!(whole.is_err() || whole.is_ok_and(|found| found["rows"] == json!([])), "a row beyond the cap came through");
    let left = "SELECT count(*) FROM information_schema.processlist WHERE user = 'reader_m_slow'";
    until("no connection is left", || server.run(left).unwrap() == "0");
}
