//! Rules about questions to databases: who is asked, and which fields are bound where.

use super::At;
use crate::database::Database;
use crate::field::ValueKind;
use crate::operation::{BodyKind, EffectClass};
use crate::parse::query::WORDS;
use crate::place::Place;

impl At<'_> {
    /// An endpoint is asked in its own way, only to read, with each place filled by one field.
    pub(super) fn query(&self) {
        let op = self.operation;
        let endpoint = self.parts.endpoints.get(&op.endpoint);
        let kind = endpoint.and_then(|endpoint| Database::of_url(&endpoint.url));
        if !WORDS.contains(&op.method.as_str()) {
            return self.no_query(kind);
        }
        if op.effect != EffectClass::None {
            self.error("effect", format!("a request by {} only reads: effect = \"none\"", op.method));
        }
        if op.body != BodyKind::None {
            self.error("body", "a database gets no body");
        }
        if !op.headers.is_empty() {
            self.error("headers", "a database's answer has no headers");
        }
        let Some(query) = &op.query else { return };
        match kind {
            None if endpoint.is_none() => {}
            None => self.error("request", format!("[endpoint.{}] is no database", op.endpoint)),
            Some(kind) if !query.is_for(kind) => {
                let words = if kind.speaks_sql() { "SQL" } else { "FIND or AGGREGATE" };
                self.error("request", format!("{} is asked by {words}", kind.name()));
            }
            Some(kind) => {
                if let crate::database::Query::Sql(statement) = query
                    && let Some(why) = statement.misread_by(kind)
                {
                    self.error("statement", why);
                }
            }
        }
        self.bound(&query.names(), kind);
    }

    fn no_query(&self, kind: Option<Database>) {
        let op = self.operation;
        if let Some(kind) = kind {
            let words = if kind.speaks_sql() { "SQL" } else { "FIND or AGGREGATE" };
            self.error("request", format!("[endpoint.{}] is {}, which is asked by {words}", op.endpoint, kind.name()));
        }
        for (i, field) in op.fields.iter().enumerate() {
            if matches!(field.at, Some(Place::Bind(_))) {
                self.error(
                    &format!("fields[{i}].at"),
                    format!("\"bind:\" goes with a request by {}", WORDS.join(", ")),
                );
            }
        }
    }

    fn bound(&self, names: &[&str], kind: Option<Database>) {
        let op = self.operation;
        for (i, field) in op.fields.iter().enumerate() {
            let key = |name: &str| format!("fields[{i}].{name}");
            let Some(Place::Bind(name)) = &field.at else {
                self.error(&key("at"), "a database gets bound values only: at = \"bind:NAME\"");
                continue;
            };
            if !names.contains(&name.as_str()) {
                self.error(&key("at"), format!("there is no place :{name} in what is asked"));
            }
            if kind == Some(Database::Mongodb) && field.kind == ValueKind::Json {
                self.error(&key("type"), "a document would be more than a value there: bind scalars only");
            }
            if kind == Some(Database::Mongodb) && field.optional {
                self.error(&key("optional"), "a value that is absent would widen what is asked");
            }
        }
        for name in names {
            let place = Place::Bind((*name).to_owned());
            if !self.partial && !op.fields.iter().any(|field| field.at.as_ref() == Some(&place)) {
                self.error("fields", format!("no field is at = \"bind:{name}\""));
            }
        }
    }
}
