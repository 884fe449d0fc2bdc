//! What a database is asked: `statement`, or `filter`, `projection`, `sort`, `limit` and `pipeline`.

use super::reader::Table;
use crate::database::Query;
use crate::document::{DocumentCommand, Documents};
use crate::limits::QUERY_LIMIT_MAX;
use crate::statement::Statement;

/// Words of requests that a database answers.
pub(super) const WORDS: &[&str] = &["SQL", "FIND", "AGGREGATE"];

/// Reads what belongs to the request's word; errors are left in the source.
pub(super) fn read(table: &Table<'_>, method: &str, collection: &str) -> Option<Query> {
    let statement = table.get("statement");
    let parts = ["filter", "projection", "sort", "pipeline"].map(|key| (key, table.get(key)));
    let limit = table.get("limit");
    // A request that could not be read is an error already.
    if method.is_empty() {
        return None;
    }
    let command = DocumentCommand::from_word(method);
    let fits = |key: &str| match command {
        Some(DocumentCommand::Find) => key != "pipeline",
        Some(DocumentCommand::Aggregate) => key == "pipeline",
        None => false,
    };
    for (key, item) in parts.iter().chain([&("limit", limit.clone())]) {
        if let Some(item) = item.as_ref().filter(|_| !fits(key)) {
            item.error(format!("\"{key}\" does not go with a request by {method}"));
        }
    }
    match (method, command) {
        ("SQL", _) if statement.is_none() => table.error("a request by SQL needs \"statement\""),
        ("SQL", _) => return statement?.parsed(Statement::parse).map(Query::Sql),
        (_, _) => {
            if let Some(statement) = statement {
                statement.error("\"statement\" goes with request = \"SQL ENDPOINT\"");
            }
        }
    }
    let command = command?;
    let mut documents = match Documents::of(command, collection) {
        Ok(documents) => documents,
        Err(message) => {
            table.error(message);
            return None;
        }
    };
    for (key, item) in parts {
        if let Some(item) = item.filter(|_| fits(key)) {
            item.parsed(|text| documents.set(key, text))?;
        }
    }
    if command == DocumentCommand::Aggregate && documents.pipeline.is_empty() {
        table.error("a request by AGGREGATE needs \"pipeline\", as JSON text");
    }
    if let Some(item) = limit.filter(|_| fits("limit")) {
        let number = item.integer().filter(|number| (1..=QUERY_LIMIT_MAX).contains(number));
        documents.limit = number.and_then(|number| u32::try_from(number).ok());
        if documents.limit.is_none() {
            item.error(format!("a limit is a whole number from 1 to {QUERY_LIMIT_MAX}"));
        }
    }
    Some(Query::Documents(documents))
}
