//! Questions to databases in a contract: what is one, and that no value changes it.

use oncegate_contract::{Answer, Contract, Database, Query, Statement, bound_values, found, lint, render};
use proptest::prelude::*;

use crate::fixtures::Call;

const HEAD: &str = "[component]\nname = \"books\"\neffect = \"none\"\n[endpoint.db]\nurl = \"postgres://db.example/books\"\n\
    [endpoint.my]\nurl = \"mysql://db.example/books\"\n[endpoint.docs]\nurl = \"mongodb://db.example/shop\"\n\
    [endpoint.web]\nurl = \"https://web.example\"\n[tool.ask]\noperations = [\"o\"]\n[operation.o]\n";

fn parse(operation: &str) -> Result<Contract, String> {
    Contract::parse("c.toml", &format!("{HEAD}{operation}")).map_err(|errors| errors.to_string())
}

const BY_ID: &str = "effect = \"none\"\nrequest = \"SQL db\"\nstatement = \"SELECT a FROM t WHERE id = :id ORDER BY a\"\n\
    fields = [ { name = \"id\", at = \"bind:id\" } ]\n";

#[test]
fn a_statement_and_its_fields_belong_together() {
    let contract = parse(BY_ID).unwrap();
    let operation = &contract.operations["o"];
    assert_eq!((operation.method.as_str(), operation.endpoint.as_str()), ("SQL", "db"));
    assert!(matches!(&operation.query, Some(Query::Sql(statement)) if statement.names() == ["id"]));
    let documents = "effect = \"none\"\nrequest = \"FIND docs:orders\"\nfilter = '{\"_id\": \":id\"}'\nlimit = 5\n\
        fields = [ { name = \"id\", at = \"bind:id\" } ]\n";
    assert!(matches!(&parse(documents).unwrap().operations["o"].query, Some(Query::Documents(_))));
}

#[test]
fn what_does_not_fit_is_an_error_with_its_line() {
    let sql = |rest: &str| format!("effect = \"none\"\nrequest = \"SQL db\"\n{rest}");
    for (operation, said) in [
        (BY_ID.replace("effect = \"none\"", "effect = \"keyed\""), "only reads"),
        (BY_ID.replace("bind:id", "query:id"), "bound values only"),
        (BY_ID.replace("bind:id", "bind:other"), "no place :other"),
        (BY_ID.replace("SQL db", "SQL web"), "is no database"),
        (BY_ID.replace("SQL db", "SQL docs"), "asked by FIND or AGGREGATE"),
        (BY_ID.replace("SQL db", "SQL db:x"), "SQL ENDPOINT"),
        (BY_ID.replace("SQL db", "GET db:/x").replace("statement", "# statement"), "asked by SQL"),
        (sql("statement = \"SELECT :id\""), "no field is at = \"bind:id\""),
        (sql(""), "needs \"statement\""),
        (sql("statement = \"SELECT 1\"\nfilter = '{}'"), "does not go with a request by SQL"),
        (sql("statement = \"SELECT 1\"\nbody = \"json\""), "gets no body"),
        (sql("statement = \"SELECT 1\"\nheaders = [\"etag\"]"), "no headers"),
        ("effect = \"none\"\nrequest = \"SQL my\"\nstatement = \"SELECT ? \"".to_owned(), "place without a name"),
        ("effect = \"none\"\nrequest = \"FIND docs:orders\"\npipeline = '[]'".to_owned(), "does not go with"),
        ("effect = \"none\"\nrequest = \"AGGREGATE docs:orders\"".to_owned(), "needs \"pipeline\""),
        ("effect = \"none\"\nrequest = \"FIND docs:orders\"\nlimit = 0".to_owned(), "from 1 to"),
        ("effect = \"none\"\nrequest = \"FIND docs:system.users\"".to_owned(), "server's own"),
        (
            "effect = \"none\"\nrequest = \"GET web:/x\"\nfields = [ { name = \"a\", at = \"bind:a\" } ]".to_owned(),
            "\"bind:\" goes with",
        ),
        (
            "effect = \"none\"\nrequest = \"FIND docs:o\"\nfilter = '{\"a\": \":a\"}'\nfields = [ { name = \"a\", at = \"bind:a\", type = \"json\" } ]".to_owned(),
            "scalars only",
        ),
    ] {
        let errors = parse(&operation).unwrap_err();
        assert!(errors.contains(said), "{operation}\n{errors}");
    }
}

#[test]
fn a_reviewer_is_asked_about_stars_and_first_rows() {
    let codes = |statement: &str| -> Vec<&'static str> {
        let text = BY_ID.replace("SELECT a FROM t WHERE id = :id ORDER BY a", statement);
        lint(&parse(&text).unwrap()).iter().map(|lint| lint.code).collect()
    };
    assert_eq!(codes("SELECT a FROM t WHERE id = :id"), Vec::<&str>::new());
    assert_eq!(codes("SELECT * FROM t WHERE id = :id"), ["select-star"]);
    assert_eq!(codes("SELECT a, t.* FROM t WHERE id = :id"), ["select-star"]);
    assert_eq!(codes("SELECT count(*), a * 2 FROM t WHERE id = :id"), Vec::<&str>::new());
    assert_eq!(codes("DELETE FROM t WHERE id = :id"), ["not-a-select"]);
}

#[test]
fn a_part_of_the_rows_is_no_source() {
    let contract = parse(BY_ID).unwrap();
    let answer = |body: &str| Answer { status: 200, headers: Vec::new(), body: body.into(), complete: true };
    let counts = |body: &str| found(&contract.operations["o"], &answer(body));
    assert!(counts(r#"{"rows": [], "truncated": false}"#));
    assert!(!counts(r#"{"rows": [{"a": 1}], "truncated": true}"#));
    assert!(!counts(r#"{"rows": [{"a": 1}]}"#));
}

#[test]
fn a_question_to_a_database_is_not_written_as_http() {
    let contract = parse(BY_ID).unwrap();
    let operation = &contract.operations["o"];
    let resolved = Call::default().text("id", "x").resolve(operation).unwrap();
    assert!(render(operation, "https://web.example", &resolved, None).is_err());
    let values = bound_values(operation, &resolved).unwrap();
    assert_eq!(values.len(), 1);
    let ended = Call::default().text("id", "a\0b").resolve(operation).unwrap();
    assert!(bound_values(operation, &ended).is_err());
}

proptest! {
    /// Whatever stands in a contract, the text for a database has the contract's text and markers only,
    /// and as many markers as names.
    #[test]
    fn markers_and_names_agree(text in "[ a-z':\"`$?;(),=-]{0,60}") {
        let Ok(statement) = Statement::parse(&text) else { return Ok(()) };
        for kind in [Database::Postgres, Database::Mysql, Database::Sqlite] {
            let (written, names) = statement.written(kind);
            let distinct = statement.names();
            prop_assert!(names.iter().all(|name| distinct.contains(name)));
            prop_assert_eq!(names.is_empty(), distinct.is_empty());
            if distinct.is_empty() {
                prop_assert_eq!(&written, &text);
            }
            if kind == Database::Mysql && statement.misread_by(kind).is_none() {
                let quoted = text.contains(['\'', '"', '`']);
                prop_assert!(quoted || written.matches('?').count() == names.len());
            }
        }
    }

    /// No text makes the parser panic.
    #[test]
    fn any_text_is_a_statement_or_an_error(text in "\\PC{0,200}") {
        let _ = Statement::parse(&text);
    }
}
