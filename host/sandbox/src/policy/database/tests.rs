//! What a policy must say before a database is asked, and what it cannot say.

use oncegate_contract::Contract;

use crate::policy::{Policy, decide};

const CONTRACT: &str = r#"
[component]
name = "books"
effect = "none"
[endpoint.books]
url = "postgres://db.example/books"
credential = "books"
[endpoint.file]
url = "sqlite:books"
[tool.read]
operations = ["by-id", "by-file"]
[operation.by-id]
effect = "none"
request = "SQL books"
statement = "SELECT title FROM books WHERE id = :id"
fields = [ { name = "id", at = "bind:id", type = "integer", from = "argument:/id" } ]
[operation.by-file]
effect = "none"
request = "SQL file"
statement = "SELECT 1"
"#;

fn decided(policy: &str, operation: &str) -> Result<String, String> {
    let contract = Contract::parse("c.toml", CONTRACT).unwrap_or_else(|errors| panic!("{errors}"));
    let head = "[[component]]\ntenants = [\"acme\"]\ngrant = [\"by-id\", \"by-file\"]\n";
    let text = format!("{head}{policy}");
    let policy = Policy::parse("p.toml", &text).map_err(|errors| errors.to_string())?;
    let grant = decide(&policy, &contract, &[1; 32], "acme", operation).map_err(|denied| denied.to_string())?;
    let database = grant.database.unwrap();
    Ok(format!("{} {} {} {:?}", database.runs_as(), database.reached(), database.rows_max, database.within))
}

const LOGIN: &str = "[credential.books]\nfrom = \"env:X\"\nattach = \"password\"\n";

fn books(lines: &str) -> Result<String, String> {
    decided(&format!("[endpoint.books]\nurl = \"postgres://10.0.0.1/books\"\n{lines}\n{LOGIN}"), "by-id")
}

#[test]
fn a_database_is_granted_with_its_role_and_bounds() {
    let said = books("user = \"app\"\nrole = \"books_reader\"\nrows = 5\nstatement-timeout = \"2s\"").unwrap();
    assert_eq!(said, "the role books_reader encrypted 5 2s");
    assert_eq!(books("user = \"app\"").unwrap(), "the user app encrypted 1000 5s");
    let file = decided("[endpoint.file]\nfile = \"/srv/books.db\"", "by-file").unwrap();
    assert!(file.contains("the file /srv/books.db"), "{file}");
}

#[test]
fn what_is_missing_or_contradicts_is_denied() {
    for (lines, why) in [
        ("", "no `user`"),
        ("user = \"a\"\ntls = \"off\"", "allow-private"),
        ("user = \"a\"\nrole-checked = false", "can say what a role may do"),
        ("user = \"a\"\ncredential = \"other\"", "names another credential"),
        ("file = \"/x\"", "is a server"),
        ("user = \"a\"\nproxy = \"http://10.0.0.3:3128\"", "reached directly"),
    ] {
        let said = books(lines).unwrap_err();
        assert!(said.contains(why), "{lines}: {said}");
    }
    let header = "[endpoint.books]\nurl = \"postgres://h/x\"\nuser = \"a\"\n[credential.books]\nfrom = \"env:X\"\nattach = \"header:A\"\n";
    assert!(decided(header, "by-id").unwrap_err().contains("attach = \"password\""));
    let other = format!("[endpoint.books]\nurl = \"mysql://h/x\"\nuser = \"a\"\n{LOGIN}");
    assert!(decided(&other, "by-id").unwrap_err().contains("the contract asks PostgreSQL"));
    let http = format!("[endpoint.books]\nurl = \"https://h/x\"\nuser = \"a\"\n{LOGIN}");
    assert!(decided(&http, "by-id").is_err());
    assert!(decided("[endpoint.file]\n", "by-file").unwrap_err().contains("no `file`"));
}

#[test]
fn a_policy_that_says_it_wrongly_does_not_load() {
    for (lines, key) in [
        ("user = \"a b\"", "user"),
        ("role = \"\"", "role"),
        ("file = \"books.db\"", "file"),
        ("file = \"/b\"\nuser = \"a\"", "user"),
        ("tls = \"maybe\"", "tls"),
        ("rows = 0", "rows"),
        ("rows = 100000", "rows"),
        ("statement-timeout = \"2h\"", "statement-timeout"),
        ("read-concern = \"none\"", "read-concern"),
    ] {
        let said = Policy::parse("p.toml", &format!("[endpoint.books]\n{lines}\n")).unwrap_err().to_string();
        assert!(said.contains(&format!("endpoint.books.{key}")), "{lines}: {said}");
    }
    for url in ["postgres://u:p@h/x", "postgres://h/x?a", "sqlite:/etc/x"] {
        assert!(Policy::parse("p.toml", &format!("[endpoint.books]\nurl = \"{url}\"\n")).is_err(), "{url}");
    }
}
