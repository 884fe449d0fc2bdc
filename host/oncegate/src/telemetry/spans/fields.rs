//! What a span says of itself: a closed list of names, and short values.

use tracing::field::{Field, Visit};
use tracing::span::Attributes;

/// All that may leave. `host/TELEMETRY.md` says what each is.
const NAMES: [&str; 17] = [
    "error.type",
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "http.request.method",
    "http.response.status_code",
    "mcp.method.name",
    "oncegate.effect.outcome",
    "oncegate.ledger.event",
    "oncegate.ledger.events",
    "oncegate.ledger.result",
    "oncegate.lookup.outcome",
    "oncegate.operation",
    "oncegate.replayed",
    "oncegate.status",
    "server.address",
    "server.port",
    PARENT,
];
/// What the caller says that its trace is: read, and not passed on as a field.
const PARENT: &str = "traceparent";
/// Bytes of a text: names of tools and hosts have fewer.
const TEXT_BYTES_MAX: usize = 256;

/// One thing that a span says.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::telemetry) struct Attribute {
    pub(in crate::telemetry) name: &'static str,
    pub(in crate::telemetry) value: Word,
}

/// Its value.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::telemetry) enum Word {
    Text(String),
    Number(i64),
    Truth(bool),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<Attribute>);

impl Fields {
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let mut fields = Self::default();
        attributes.record(&mut fields);
        fields
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|attribute| attribute.name == name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|attribute| attribute.name == name).and_then(|attribute| match &attribute.value {
            Word::Text(text) => Some(text.as_str()),
            Word::Number(_) | Word::Truth(_) => None,
        })
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.text(PARENT)
    }

    pub(super) fn into_attributes(self) -> Vec<Attribute> {
        self.0.into_iter().filter(|attribute| attribute.name != PARENT).collect()
    }

    fn set(&mut self, field: &Field, value: Word) {
        let Some(name) = NAMES.into_iter().find(|name| *name == field.name()) else { return };
        match self.0.iter_mut().find(|attribute| attribute.name == name) {
            Some(attribute) => attribute.value = value,
            None => self.0.push(Attribute { name, value }),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if value.len() <= TEXT_BYTES_MAX {
            self.set(field, Word::Text(value.to_owned()));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Word::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Word::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Word::Truth(value));
    }

    /// Whatever would have to be shown as a text is none of the listed ones.
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
