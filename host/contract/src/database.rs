//! Databases that a contract can read from: which kind, at which address, and what one is asked.

use url::{Host, Url};

use crate::document::Documents;
use crate::statement::Statement;

/// A kind of database, as the scheme of an endpoint's URL names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// `postgres://`: PostgreSQL, and what speaks its protocol.
    Postgres,
    /// `mysql://`: MySQL and MariaDB.
    Mysql,
    /// `sqlite:NAME`: a file that policy names.
    Sqlite,
    /// `mongodb://`: documents.
    Mongodb,
}

const SCHEMES: &[(&str, Database)] = &[
    ("postgres://", Database::Postgres),
    ("mysql://", Database::Mysql),
    ("sqlite:", Database::Sqlite),
    ("mongodb://", Database::Mongodb),
];

/// Longest name of a database; PostgreSQL's and MySQL's own bound.
const NAME_BYTES_MAX: usize = 63;

impl Database {
    /// The kind that a URL names by its scheme; none for everything else.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        SCHEMES.iter().find(|(scheme, _)| url.starts_with(scheme)).map(|(_, kind)| *kind)
    }

    /// The product's name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL or MariaDB",
            Self::Sqlite => "SQLite",
            Self::Mongodb => "MongoDB",
        }
    }

    /// The word for machines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
            Self::Mongodb => "mongodb",
        }
    }

    /// Whether it is asked by a SQL statement.
    #[must_use]
    pub const fn speaks_sql(self) -> bool {
        !matches!(self, Self::Mongodb)
    }

    const fn port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Mysql => 3306,
            Self::Sqlite => 0,
            Self::Mongodb => 27017,
        }
    }
}

/// Where a database is, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    /// Which kind.
    pub kind: Database,
    /// Name or literal of the host; empty for a file.
    pub host: String,
    /// The port; 0 for a file.
    pub port: u16,
    /// The name of the database; for a file only a name for people.
    pub database: String,
}

impl DatabaseAddress {
    /// Takes `postgres://HOST[:PORT]/DATABASE`, `mysql://…`, `mongodb://…` or `sqlite:NAME` apart.
    ///
    /// # Errors
    /// A text that tells what is wrong. Users, passwords and options are never part of such a URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let asked = "expected postgres://HOST:PORT/DATABASE, mysql://HOST:PORT/DATABASE, mongodb://HOST:PORT/DATABASE or sqlite:NAME";
        let (scheme, kind) = SCHEMES.iter().find(|(scheme, _)| text.starts_with(scheme)).ok_or(asked)?;
        let rest = &text[scheme.len()..];
        if *kind == Database::Sqlite {
            return Ok(Self { kind: *kind, host: String::new(), port: 0, database: database_name(rest)? });
        }
        if rest.contains('@') {
            return Err("the URL has a user or password; credentials come from policy".into());
        }
        if rest.chars().any(|c| c.is_whitespace() || c.is_control() || "%\\?#".contains(c)) {
            return Err("the URL of a database has no options, white space, percent signs or backslashes".into());
        }
        let (authority, path) = rest.split_once('/').ok_or(asked)?;
        let database = database_name(path)?;
        // The rules for hosts are those of https, so that each address has one spelling.
        let read =
            |scheme: &str| Url::parse(&format!("{scheme}://{authority}/")).map_err(|e| format!("not a URL: {e}"));
        let (url, other) = (read("https")?, read("http")?);
        let host = match url.host() {
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            None => return Err(asked.into()),
        };
        if host.is_empty() {
            return Err("the URL has no host".into());
        }
        // Each of the two schemes drops its own port.
        let port = url.port().or(other.port()).unwrap_or(kind.port());
        Ok(Self { kind: *kind, host, port, database })
    }
}

fn database_name(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match text {
        "" => Err("the URL names no database".into()),
        name if name.len() <= NAME_BYTES_MAX && name.bytes().all(good) => Ok(name.to_owned()),
        _ => Err(format!("a database's name is letters, digits, \"_\" and \"-\", at most {NAME_BYTES_MAX}")),
    }
}

/// What a database is asked: constant text of the contract with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// One SQL statement.
    Sql(Statement),
    /// A search or a pipeline over one collection.
    Documents(Documents),
}

impl Query {
    /// The names of the places for values, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Sql(statement) => statement.names(),
            Self::Documents(documents) => documents.names(),
        }
    }

    /// Everything that is constant in it, by the contract's keys, for reviewers.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Sql(statement) => vec![("statement", statement.text().to_owned())],
            Self::Documents(documents) => documents.lines(),
        }
    }

    /// Whether that kind of database can be asked so.
    #[must_use]
    pub const fn is_for(&self, kind: Database) -> bool {
        matches!(self, Self::Sql(_)) == kind.speaks_sql()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> (String, u16, String) {
        let found = DatabaseAddress::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        (found.host, found.port, found.database)
    }

    #[test]
    fn a_url_is_taken_apart() {
        assert_eq!(address("postgres://db.example/books"), ("db.example".into(), 5432, "books".into()));
        assert_eq!(address("mysql://DB.example:3307/a_b-c"), ("db.example".into(), 3307, "a_b-c".into()));
        assert_eq!(address("mongodb://[::1]:443/x"), ("::1".into(), 443, "x".into()));
        assert_eq!(address("postgres://db.example:80/x").1, 80);
        assert_eq!(address("sqlite:books"), (String::new(), 0, "books".into()));
    }

    #[test]
    fn other_spellings_of_an_address_are_that_address() {
        assert_eq!(address("postgres://0x7f.1/x").0, "127.0.0.1");
        assert_eq!(address("postgres://2130706433/x").0, "127.0.0.1");
        assert_eq!(address("postgres://db.example./x").0, "db.example");
    }

    #[test]
    fn nothing_hides_in_a_url() {
        for url in [
            "postgres://u@h/x",
            "postgres://u:p@h/x",
            "postgres://h/x?sslmode=disable",
            "postgres://h/x#y",
            "postgres://h/x/y",
            "postgres://h/",
            "postgres://h",
            "postgres:///x",
            "postgres://h/%78",
            "postgres://h /x",
            "postgres://h,i/x?",
            "mysql://h:99999/x",
            "sqlite:/etc/passwd",
            "sqlite:a?mode=rwc",
            "sqlite:",
            "mongodb+srv://h/x",
            "redis://h/x",
        ] {
            assert!(DatabaseAddress::parse(url).is_err(), "{url}");
        }
    }
}
