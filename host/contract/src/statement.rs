//! A SQL statement of a contract: constant text with named places for bound values.
//!
//! `:name` outside of quotes is a place; `::` is a cast and stays what it is. Values never become part
//! of the text: a database gets the text with its own markers and, beside it, the values. What may be
//! asked at all is decided by the database, by what its connection can do; nothing here tries to
//! recognise a harmless statement.

use crate::database::Database;
use crate::limits::{BINDS_MAX, NAME_BYTES_MAX, STATEMENT_BYTES_MAX};

/// A parsed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    text: String,
    pieces: Vec<Piece>,
    /// `?` outside of quotes: an operator in PostgreSQL, a nameless place elsewhere.
    question_mark: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(String),
}

impl Statement {
    /// Parses `SELECT total FROM orders WHERE id = :id`.
    ///
    /// # Errors
    /// A text that tells what is wrong: what databases would read in different ways (comments,
    /// backslashes and dollar signs that quote) is refused, since a reviewer reads it once.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the statement is empty".into());
        }
        if text.len() > STATEMENT_BYTES_MAX {
            return Err(format!("the statement is longer than {STATEMENT_BYTES_MAX} bytes"));
        }
        if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            return Err("the statement has control characters".into());
        }
        let mut reader = Reader { rest: text, pieces: Vec::new(), plain: String::new(), question_mark: false };
        reader.read()?;
        let statement = Self { text: text.to_owned(), pieces: reader.pieces, question_mark: reader.question_mark };
        match statement.names().len() {
            count if count > BINDS_MAX => Err(format!("more than {BINDS_MAX} places for values")),
            _ => Ok(statement),
        }
    }

    /// The text as it is in the contract.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of its places, each once, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for piece in &self.pieces {
            if let Piece::Value(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name.as_str());
            }
        }
        names
    }

    /// The text with the markers of a database, and the names in the order in which it takes values.
    #[must_use]
    pub fn written(&self, kind: Database) -> (String, Vec<&str>) {
        let distinct = self.names();
        let (mut text, mut order) = (String::new(), Vec::new());
        for piece in &self.pieces {
            let name = match piece {
                Piece::Text(plain) => {
                    text.push_str(plain);
                    continue;
                }
                Piece::Value(name) => name.as_str(),
            };
            let number = distinct.iter().position(|known| *known == name).map_or(0, |at| at + 1);
            match kind {
                Database::Postgres => text.push_str(&format!("${number}")),
                Database::Sqlite => text.push_str(&format!("?{number}")),
                Database::Mysql | Database::Mongodb => {
                    text.push('?');
                    order.push(name);
                }
            }
        }
        match kind {
            Database::Mysql | Database::Mongodb => (text, order),
            Database::Postgres | Database::Sqlite => (text, distinct),
        }
    }

    /// Why that kind of database would read the text in another way, if it would.
    #[must_use]
    pub fn misread_by(&self, kind: Database) -> Option<&'static str> {
        let nameless = self.question_mark && kind != Database::Postgres;
        nameless.then_some("\"?\" is a place without a name there; write :name")
    }

    /// Whether a word stands in the text, in any case; for hints only.
    #[must_use]
    pub fn has_word(&self, word: &str) -> bool {
        self.words().any(|found| found.eq_ignore_ascii_case(word))
    }

    /// Whether it begins as a question does; a hint, and a wall only beside the server's.
    #[must_use]
    pub fn begins_as_select(&self) -> bool {
        let first = self.words().next().unwrap_or_default();
        ["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|word| first.eq_ignore_ascii_case(word))
    }

    /// The words between the places for values.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        let plain = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Value(_) => None,
        });
        plain.flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_')).filter(|word| !word.is_empty())
    }
}

struct Reader<'a> {
    rest: &'a str,
    pieces: Vec<Piece>,
    plain: String,
    question_mark: bool,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\'' | '"' | '`' => self.quoted(c)?,
                ':' => self.colon()?,
                '-' if self.rest.starts_with("--") => return Err(COMMENT.into()),
                '/' if self.rest.starts_with("/*") => return Err(COMMENT.into()),
                '$' => return Err("write a value as :name; \"$\" marks values or quotes text".into()),
                _ => {
                    self.question_mark |= c == '?';
                    self.take(c.len_utf8());
                }
            }
        }
        self.end_plain();
        Ok(())
    }

    /// Moves so many bytes to the plain text.
    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.plain.push_str(taken);
        self.rest = rest;
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        // A quote that is written twice is two quotes in a row to this loop, which is the same.
        let inner = &self.rest[1..];
        let end = inner.find(quote).ok_or_else(|| format!("{quote} opens a quotation that does not end"))?;
        if inner[..end].contains('\\') {
            return Err("a backslash in quotes means something else to each database; bind the text as :name".into());
        }
        self.take(end + 2);
        Ok(())
    }

    fn colon(&mut self) -> Result<(), String> {
        if self.rest.starts_with("::") {
            self.take(2);
            return Ok(());
        }
        let named = &self.rest[1..];
        if !named.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            self.take(1);
            return Ok(());
        }
        let end = named.find(|c: char| !is_name(c)).unwrap_or(named.len());
        let (name, rest) = named.split_at(end);
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("the name of a place is longer than {NAME_BYTES_MAX} bytes"));
        }
        self.end_plain();
        self.pieces.push(Piece::Value(name.to_owned()));
        self.rest = rest;
        Ok(())
    }

    fn end_plain(&mut self) {
        if !self.plain.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.plain)));
        }
    }
}

const COMMENT: &str = "a statement has no comments, which databases end in different ways; comment in the contract";

/// Characters in the name of a place.
pub(crate) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, kind: Database) -> (String, Vec<String>) {
        let statement = Statement::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (text, names) = statement.written(kind);
        (text, names.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn each_database_gets_its_own_markers() {
        let text = "SELECT a FROM t WHERE b = :b AND c > :c OR b < :b";
        assert_eq!(
            written(text, Database::Postgres),
            ("SELECT a FROM t WHERE b = $1 AND c > $2 OR b < $1".into(), vec!["b".into(), "c".into()])
        );
        assert_eq!(
            written(text, Database::Sqlite),
            ("SELECT a FROM t WHERE b = ?1 AND c > ?2 OR b < ?1".into(), vec!["b".into(), "c".into()])
        );
        assert_eq!(
            written(text, Database::Mysql),
            ("SELECT a FROM t WHERE b = ? AND c > ? OR b < ?".into(), vec!["b".into(), "c".into(), "b".into()])
        );
    }

    #[test]
    fn casts_slices_and_quotations_are_no_places() {
        for text in [
            "SELECT a::text, b [1:2], c : d FROM t",
            "SELECT ':a', \"b:c\", 'it''s :d'",
            "SELECT `a:b`",
            "SELECT '12:30'::time",
        ] {
            assert_eq!(written(text, Database::Postgres), (text.to_owned(), vec![]), "{text}");
        }
        assert_eq!(written("SELECT :a::int", Database::Postgres).0, "SELECT $1::int");
    }

    #[test]
    fn what_databases_read_in_different_ways_is_refused() {
        for text in [
            "",
            "  ",
            "SELECT 'a",
            "SELECT '\\'",
            "SELECT 1 -- x",
            "SELECT /*! 1 */ 1",
            "SELECT $1",
            "SELECT $$a$$",
            "SELECT \u{0}",
            "SELECT \u{7f}",
        ] {
            assert!(Statement::parse(text).is_err(), "{text:?}");
        }
        let nameless = Statement::parse("SELECT a ? 'b' FROM t").unwrap();
        assert!(nameless.misread_by(Database::Sqlite).is_some() && nameless.misread_by(Database::Postgres).is_none());
    }

    #[test]
    fn words_are_seen_in_any_case() {
        let statement = Statement::parse("select a from t where a = :limit_to").unwrap();
        assert!(statement.has_word("SELECT") && !statement.has_word("limit"));
    }
}
