//! PostgreSQL: a real server, and its own refusals.

use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::databases::postgres::Postgres;
use serde_json::{Value, json};

use super::{Asked, INJECTIONS, NO_ROWS, PASSWORD, Reader, all_refused, contract, integer, nothing, sql, text};

/// Logins are the server's, not a database's: the first test makes them.
const LOGINS: &str = "
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'reader') THEN
    CREATE ROLE reader;
    CREATE ROLE app LOGIN PASSWORD 'SECRET' IN ROLE reader;
    CREATE ROLE writer LOGIN PASSWORD 'SECRET' IN ROLE reader;
    CREATE ROLE stranger LOGIN PASSWORD 'SECRET';
    CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'SECRET';
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$";

const BOOKS: &str = r#"
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE books (id bigint PRIMARY KEY, title text, price numeric(20,4), added timestamptz, day date,
  cover bytea, tags text[], meta jsonb, sold boolean, code uuid, weight float8, feel mood, small int2, hour time);
INSERT INTO books VALUES (9007199254740993, 'One', 12345678901234.5600, '2026-01-02 03:04:05.678+02', '2026-01-02',
  '\x00ff', '{a,NULL}', '{"a": [1, null]}', true, '12345678-1234-1234-1234-123456789abc', 0.5, 'glad', -3, '10:20:30.5');
INSERT INTO books (id, title) VALUES (2, 'Two'), (3, 'x'' OR ''1''=''1');
CREATE TABLE vault (secret text);
INSERT INTO vault VALUES ('hidden');
CREATE SEQUENCE seq;
CREATE FUNCTION sneak() RETURNS int SECURITY DEFINER LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO books (id, title) VALUES (666, 'sneaked'); RETURN 1; END $$;
CREATE FUNCTION sneak_table() RETURNS int SECURITY DEFINER LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE 'CREATE TABLE stolen (a int)'; RETURN 1; END $$;
CREATE FUNCTION sneak_out() RETURNS int SECURITY DEFINER LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); DELETE FROM books; RETURN 1; END $$;
CREATE FUNCTION sneak_next() RETURNS bigint SECURITY DEFINER LANGUAGE sql AS $$ SELECT nextval('seq') $$;
CREATE PROCEDURE wipe(INOUT x int) SECURITY DEFINER LANGUAGE plpgsql AS
  $$ BEGIN DELETE FROM books; x := 1; END $$;
CREATE PROCEDURE wipe_and_commit(INOUT x int) LANGUAGE plpgsql AS
  $$ BEGIN COMMIT; DELETE FROM books; x := 1; END $$;
GRANT SELECT ON books TO reader; GRANT USAGE ON SEQUENCE seq TO reader; GRANT SELECT, INSERT ON books TO writer"#;

/// A database of the test's own, with books in it.
fn database(name: &str) -> &'static Postgres {
    let server = Postgres::shared().unwrap();
    server.run("postgres", &LOGINS.replace("SECRET", PASSWORD)).unwrap();
    server.run("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    server.run(name, BOOKS).unwrap();
    server
}

fn policy(server: &Postgres, name: &str, lines: &str) -> String {
    format!(
        "url = \"{}\"\nallow-private = true\nca = \"{}\"\n{lines}\n[credential.books]\nfrom = \"env:BOOKS_KEY\"\nattach = \"password\"",
        server.url(name),
        server.authority().display()
    )
}

fn reader(server: &Postgres, name: &str, asked: &[Asked<'_>], lines: &str) -> Reader {
    Reader::new(&contract("postgres://db.example/books", true, asked), &policy(server, name, lines))
}

const APP: &str = "user = \"app\"\nrole = \"reader\"";

/// What is in the database: changed by nothing that a lookup can do.
fn state(server: &Postgres, name: &str) -> String {
    let all = "SELECT count(*), (SELECT md5(string_agg(b::text, ',' ORDER BY id)) FROM books b), \
        (SELECT is_called FROM seq), (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_largeobject_metadata) FROM books";
    server.run(name, all).unwrap()
}

#[test]
fn rows_come_exactly_and_values_are_only_values() {
    let server = database("rows");
    let by_id = sql("SELECT * FROM books WHERE id = :id");
    let by_title = sql("SELECT id FROM books WHERE title = :title ORDER BY id");
    let many = sql("SELECT :a::text AS a, :b::numeric AS b, :c::boolean AS c, :d::bytea AS d, :e::date AS e");
    let asked = [
        ("by-id", by_id.as_str(), "{ name = \"id\", at = \"bind:id\", type = \"integer\" }"),
        ("by-title", by_title.as_str(), "{ name = \"title\", at = \"bind:title\" }"),
        (
            "many",
            many.as_str(),
            "{ name = \"a\", at = \"bind:a\", optional = true }, { name = \"b\", at = \"bind:b\", type = \"decimal\" }, \
             { name = \"c\", at = \"bind:c\", type = \"boolean\" }, { name = \"d\", at = \"bind:d\", type = \"bytes\" }, \
             { name = \"e\", at = \"bind:e\" }",
        ),
    ];
    let reader = reader(server, "rows", &asked, APP);
    let found = reader.one("by-id", integer("id", 9_007_199_254_740_993));
    let wanted = json!({
        "id": 9_007_199_254_740_993_i64, "title": "One", "price": "12345678901234.5600",
        "added": "2026-01-02T01:04:05.678Z", "day": "2026-01-02", "cover": "AP8=", "tags": ["a", null],
        "meta": { "a": [1, null] }, "sold": true, "code": "12345678-1234-1234-1234-123456789abc", "weight": 0.5,
        "feel": "glad", "small": -3, "hour": "10:20:30.5",
    });
    assert_eq!(found, json!({ "rows": [wanted], "truncated": false }));
    let fields = json!([
        { "name": "b", "value": { "decimal": "0.10" } }, { "name": "c", "value": { "truth": true } },
        { "name": "d", "value": { "bytes": "AP8=" } }, { "name": "e", "value": { "text": "2026-02-28" } },
    ]);
    let many = json!({ "a": null, "b": "0.10", "c": true, "d": "AP8=", "e": "2026-02-28" });
    assert_eq!(reader.one("many", fields)["rows"], json!([many]));
    let none = json!({ "rows": [], "truncated": false });
    let questions: Vec<(&str, Value)> = INJECTIONS.iter().map(|one| ("by-title", text("title", one))).collect();
    for answer in reader.ask(&questions) {
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), none);
    }
    assert_eq!(reader.one("by-title", text("title", "x' OR '1'='1"))["rows"], json!([{ "id": 3 }]));
    let bad = json!([
        { "name": "b", "value": { "decimal": "1" } }, { "name": "c", "value": { "truth": true } },
        { "name": "d", "value": { "bytes": "" } }, { "name": "e", "value": { "text": "31 February" } },
    ]);
    let heard = &reader.ask(&[("many", bad)])[0];
    assert!(heard.contains("InvalidField") && heard.contains("code 22"), "{heard}");
    assert_eq!(server.run("rows", "SELECT count(*) FROM books").unwrap(), "3");
}

/// Statement, and what the server says to it: its own code, or that it gives no rows.
const HOSTILE: &[(&str, &str, &[&str])] = &[
    ("insert", "INSERT INTO books (id) VALUES (5) RETURNING id", &["25006"]),
    ("update", "UPDATE books SET title = 'x' RETURNING id", &["25006"]),
    ("delete", "DELETE FROM books RETURNING id", &["25006"]),
    ("delete-quietly", "DELETE FROM books", &[NO_ROWS]),
    ("cte", "WITH x AS (INSERT INTO books (id) VALUES (5) RETURNING id) SELECT id FROM x", &["25006"]),
    ("cte-delete", "WITH x AS (DELETE FROM books RETURNING id) SELECT count(*) FROM x", &["25006"]),
    ("two", "SELECT 1; DELETE FROM books", &["42601"]),
    ("two-commit", "COMMIT; DELETE FROM books", &["42601"]),
    ("copy-program", "COPY books TO PROGRAM 'touch /tmp/oncegate-stolen'", &[NO_ROWS]),
    ("copy-out", "COPY books TO STDOUT", &[NO_ROWS]),
    ("copy-in", "COPY books FROM '/etc/passwd'", &[NO_ROWS]),
    ("into", "SELECT * INTO stolen FROM books", &[NO_ROWS]),
    ("create", "CREATE TABLE stolen (a int)", &[NO_ROWS]),
    ("temporary", "CREATE TEMP TABLE t AS SELECT 1 AS a", &[NO_ROWS]),
    ("truncate", "TRUNCATE books", &[NO_ROWS]),
    ("lock", "LOCK TABLE books", &[NO_ROWS]),
    ("for-update", "SELECT id FROM books FOR UPDATE", &["25006"]),
    ("nextval", "SELECT nextval('seq')", &["25006"]),
    ("setval", "SELECT setval('seq', 9)", &["25006", "42501"]),
    ("definer", "SELECT sneak()", &["25006"]),
    ("definer-ddl", "SELECT sneak_table()", &["25006"]),
    ("definer-next", "SELECT sneak_next()", &["25006"]),
    ("definer-out", "SELECT sneak_out()", &["25001"]),
    ("call", "CALL wipe(1)", &["25006"]),
    ("call-commit", "CALL wipe_and_commit(1)", &["2D000"]),
    ("explain", "EXPLAIN ANALYZE DELETE FROM books", &["25006"]),
    ("do", "DO 'BEGIN DELETE FROM books; END'", &[NO_ROWS]),
    ("commit", "COMMIT", &[NO_ROWS]),
    ("begin-again", "BEGIN READ WRITE", &[NO_ROWS]),
    ("set", "SET transaction_read_only = off", &[NO_ROWS]),
    ("set-config", "SELECT set_config('transaction_read_only', 'off', false)", &["25001"]),
    ("set-role", "SELECT set_config('role', 'postgres', false)", &["42501"]),
    ("set-user", "SELECT set_config('session_authorization', 'postgres', false)", &["42501"]),
    ("file-read", "SELECT pg_read_file('/etc/passwd')", &["42501"]),
    ("file-write", "SELECT lo_export(1, '/tmp/oncegate-stolen')", &["42501"]),
    ("others", "SELECT secret FROM vault", &["42501"]),
    ("out-of-role", "SELECT set_config('role', 'none', true), (SELECT secret FROM vault)", &["42501"]),
    ("kill", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'", &["42501"]),
    ("prepared", "EXECUTE s0", &["26000", NO_ROWS]),
];

#[test]
fn what_would_write_fails_at_the_server() {
    let server = database("hostile");
    let statements: Vec<(&str, String)> = HOSTILE.iter().map(|(name, text, _)| (*name, sql(text))).collect();
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let reader = reader(server, "hostile", &asked, APP);
    let before = state(server, "hostile");
    let expected: Vec<(&str, &[&str])> = HOSTILE.iter().map(|(name, _, codes)| (*name, *codes)).collect();
    all_refused(&reader, &expected);
    assert_eq!(state(server, "hostile"), before);
    assert!(!std::path::Path::new("/tmp/oncegate-stolen").exists());
}

#[test]
fn what_a_read_only_transaction_lets_pass_leaves_nothing_behind() {
    let server = database("traces");
    let statements = [
        ("large", sql("SELECT lo_create(4711) AS a")),
        ("notify", sql("SELECT pg_notify('a', 'b') AS a")),
        ("advisory", sql("SELECT pg_advisory_lock(4711) AS a")),
        ("setting", sql("SELECT set_config('statement_timeout', '0', false) AS a")),
        (
            "next",
            sql(
                "SELECT current_setting('statement_timeout') AS a, current_user AS b, current_setting('transaction_read_only') AS c",
            ),
        ),
    ];
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let reader = reader(server, "traces", &asked, APP);
    let before = state(server, "traces");
    let questions: Vec<(&str, Value)> = statements.iter().map(|(name, _)| (*name, nothing())).collect();
    let answers = reader.ask(&questions);
    assert_eq!(answers[4], r#"{"rows":[{"a":"5s","b":"reader","c":"on"}],"truncated":false}"#, "{answers:?}");
    assert_eq!(state(server, "traces"), before);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    until("the advisory lock is gone", || server.run("traces", locks).unwrap() == "0");
}

/// Waits for what the server does once it has noticed.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_slow_statement_is_stopped_at_the_server_and_many_rows_are_capped() {
    let server = database("slow");
    let statements = [
        ("sleep", sql("SELECT pg_sleep(3600)")),
        ("spin", sql("SELECT count(*) FROM generate_series(1, 1000000000000) AS n")),
        ("million", sql("SELECT n FROM generate_series(1, 1000000) AS n")),
        ("wide", sql("SELECT repeat('x', 300000) AS a FROM generate_series(1, 1000)")),
        ("huge", sql("SELECT repeat('x', 100000000) AS a")),
        ("twice", sql("SELECT 1 AS a, 2 AS a")),
        ("odd", sql("SELECT '10.0.0.1'::inet AS a")),
    ];
    let asked: Vec<Asked<'_>> = statements.iter().map(|(name, text)| (*name, text.as_str(), "")).collect();
    let reader = reader(server, "slow", &asked, &format!("{APP}\nstatement-timeout = \"3s\"\nrows = 50"));
    let questions: Vec<(&str, Value)> = statements.iter().map(|(name, _)| (*name, nothing())).collect();
    let answers = reader.ask(&questions);
    assert!(
        answers[0].contains("did not answer in time") && answers[1].contains("did not answer in time"),
        "{answers:?}"
    );
    let million: Value = serde_json::from_str(&answers[2]).unwrap_or_else(|_| panic!("{}", answers[2]));
    assert_eq!((million["rows"].as_array().unwrap().len(), &million["truncated"]), (50, &json!(true)));
    let wide: Value = serde_json::from_str(&answers[3]).unwrap_or_else(|_| panic!("{}", answers[3]));
    assert_eq!((wide["rows"].as_array().unwrap().len(), &wide["truncated"]), (3, &json!(true)));
    for answer in &answers[4..] {
        assert!(answer.starts_with("error: "), "{answer:.200}");
    }
    let mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncegate' AND datname = 'slow'";
    until("no backend is left", || server.run("slow", mine).unwrap() == "0");
}

#[test]
fn logins_that_can_do_more_are_refused_and_doctor_says_why() {
    let server = database("roles");
    let statement = sql("SELECT id FROM books ORDER BY id LIMIT 1");
    let reader = reader(server, "roles", &[("first", statement.as_str(), "")], APP);
    assert_eq!(reader.one("first", nothing())["rows"], json!([{ "id": 2 }]));
    let doctor = reader.command(&["doctor", "--json"]);
    assert!(doctor.stdout.contains("the role reader, and it only reads"), "{}", doctor.stdout);
    assert!(
        doctor.stdout.contains("may call public.sneak, which runs with the rights of postgres"),
        "{}",
        doctor.stdout
    );
    for (login, why) in [
        ("user = \"writer\"", "the role writer may write to public.books"),
        ("user = \"writer\"\nrole = \"reader\"", "the role writer may write to public.books"),
        ("user = \"boss\"\nrole = \"reader\"", "is a superuser"),
        ("user = \"stranger\"\nrole = \"reader\"", "may not take on the role reader"),
    ] {
        reader.allow(&policy(server, "roles", login));
        let run = reader.run(&[("first", nothing())], false);
        assert!(run.stdout.contains("not set up for lookups") && run.stderr.contains(why), "{login}: {run:?}");
        let doctor = reader.command(&["doctor", "--json"]);
        assert!(doctor.stdout.contains(why), "{login}: {}", doctor.stdout);
    }
    // A right that is given later is seen at the next lookup.
    reader.allow(&policy(server, "roles", APP));
    assert_eq!(reader.one("first", nothing())["rows"], json!([{ "id": 2 }]));
    server.run("roles", "GRANT UPDATE (title) ON books TO reader").unwrap();
    assert!(reader.ask(&[("first", nothing())])[0].contains("not set up for lookups"));
}

#[test]
fn passwords_and_strangers_certificates_go_nowhere() {
    let server = database("secrets");
    let statement = sql("SELECT :echo::text AS a");
    let fields = "{ name = \"echo\", at = \"bind:echo\" }";
    let reader = reader(server, "secrets", &[("echo", statement.as_str(), fields)], APP);
    let echoed = reader.one("echo", text("echo", "plain"));
    assert_eq!(echoed["rows"], json!([{ "a": "plain" }]));
    // The loudest log there is.
    let loud = reader.run(&[("echo", text("echo", "again"))], true);
    assert_eq!(loud.code, Some(0), "{}", loud.stderr);
    let public = policy(server, "secrets", APP).replace("ca = ", "# ca = ");
    reader.allow(&public);
    let run = reader.run(&[("echo", text("echo", "x"))], false);
    assert!(run.stdout.contains("could not be reached") && run.stderr.contains("certificate"), "{run:?}");
    // Without leave for private addresses nothing is connected to.
    reader.allow(&policy(server, "secrets", APP).replace("allow-private = true", "allow-private = false"));
    let run = reader.run(&[("echo", text("echo", "x"))], false);
    assert!(run.stdout.contains("could not be reached") && run.stderr.contains("loopback"), "{run:?}");
    server.run("secrets", "CREATE ROLE other LOGIN PASSWORD 'another'").unwrap();
    reader.allow(&policy(server, "secrets", "user = \"other\""));
    let run = reader.run(&[("echo", text("echo", "x"))], false);
    assert!(run.stdout.contains("not set up for lookups") && run.stderr.contains("28P01"), "{run:?}");
    reader.keeps_no_password();
}

/// Names of databases are told by whom the policy names, as those of providers are.
#[test]
fn a_databases_name_is_asked_of_the_policys_resolver() {
    let server = database("pinned");
    let statement = sql("SELECT 1 AS a");
    let reader = reader(server, "pinned", &[("one", statement.as_str(), "")], APP);
    let named = policy(server, "pinned", &format!("{APP}\ntls = \"off\"")).replace("127.0.0.1", "books.example");
    let pin = |address: &str| format!("{named}\n[resolver.hosts]\n\"books.example\" = [\"{address}\"]");
    reader.allow(&pin("127.0.0.1"));
    assert_eq!(reader.one("one", json!([]))["rows"], json!([{ "a": 1 }]));
    reader.allow(&pin("169.254.169.254"));
    let run = reader.run(&[("one", json!([]))], false);
    assert!(run.stdout.contains("could not be reached"), "{run:?}");
}

#[test]
fn an_answer_that_echoes_the_password_is_scrubbed() {
    let server = database("echoes");
    server
        .run("echoes", &format!("CREATE TABLE leak AS SELECT '{PASSWORD}'::text AS a; GRANT SELECT ON leak TO reader"))
        .unwrap();
    let statement = sql("SELECT a FROM leak");
    let reader = reader(server, "echoes", &[("leak", statement.as_str(), "")], APP);
    let stars = "*".repeat(PASSWORD.len());
    assert_eq!(reader.one("leak", nothing())["rows"], json!([{ "a": stars }]));
    reader.keeps_no_password();
}

#[test]
fn people_are_shown_what_is_asked_of_which_database() {
    let server = database("shown");
    let statement = sql("SELECT id FROM books WHERE title = :title");
    let asked = [("by-title", statement.as_str(), "{ name = \"title\", at = \"bind:title\" }")];
    let reader = reader(server, "shown", &asked, APP);
    let component = reader.component();
    let page = reader.command(&["inspect", &component]).stdout;
    for said in
        ["SQL postgres://db.example/books", "SELECT id FROM books WHERE title = :title", "PostgreSQL", "read-only"]
    {
        assert!(page.contains(said), "{said}: {page}");
    }
    let machine: Value = serde_json::from_str(&reader.command(&["inspect", &component, "--json"]).stdout).unwrap();
    assert_eq!(machine["operations"][0]["query"]["statement"], "SELECT id FROM books WHERE title = :title");
    assert_eq!(machine["operations"][0]["database"], "postgres");
    let sarif = reader.command(&["inspect", &component, "--sarif"]).stdout;
    assert!(sarif.contains("database-lookup") && sarif.contains("WHERE title = :title"), "{sarif}");
    let explained = reader.command(&["policy", "explain", &component, "by-title"]).stdout;
    assert!(explained.contains("the role reader") && explained.contains("PostgreSQL"), "{explained}");
    let explained: Value =
        serde_json::from_str(&reader.command(&["policy", "explain", &component, "by-title", "--json"]).stdout).unwrap();
    assert_eq!(explained["database"]["runs_as"], "the role reader");
    let init = reader.command(&["policy", "init", &component]).stdout;
    for line in ["# user = ", "# role = ", "# attach = \"password\"", "# rows = "] {
        assert!(init.contains(line), "{line}: {init}");
    }
    let check = reader.command(&["policy", "check", "--json"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert_eq!(serde_json::from_str::<Value>(&check.stdout).unwrap()["warnings"], json!([]));
}
