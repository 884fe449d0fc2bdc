//! What a contract says about one field: place, role, type, source, bounds and normalisers.

use serde::{Deserialize, Serialize};

use crate::normalize::Normalizer;
use crate::place::Place;
use crate::pointer::Pointer;
use crate::value::Value;

/// What a field is to the identity of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Part of the effect key.
    Key,
    /// Sent and fingerprinted; the default.
    Bound,
    /// Sent, in neither: text that a model words anew each time.
    Generated,
    /// A constant that belongs to the transport.
    Transport,
}

impl Role {
    /// The word in contracts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Bound => "bound",
            Self::Generated => "generated",
            Self::Transport => "transport",
        }
    }
}

/// The declared type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Text; the default.
    Text,
    /// A whole number.
    Integer,
    /// An exact decimal number.
    Decimal,
    /// A truth value.
    Boolean,
    /// A JSON document.
    Json,
    /// Bytes.
    Bytes,
}

impl ValueKind {
    /// The word in contracts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Boolean => "boolean",
            Self::Json => "json",
            Self::Bytes => "bytes",
        }
    }
}

/// Where the host takes a field's value from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A fact from the orchestrator.
    Context(String),
    /// The tool's arguments: typed by the model.
    Argument(Pointer),
    /// The provider's own answer to a lookup of this call.
    Lookup {
        /// The lookup operation.
        operation: String,
        /// Where in its answer.
        value: Pointer,
    },
    /// The SHA-256, in hex, of bytes in the tool's arguments.
    Content(Pointer),
    /// A frozen plan.
    Plan,
    /// Written in the contract.
    Const(Value),
    /// The guest's word.
    Guest,
}

impl Source {
    /// The text of the source, as contracts write it.
    pub fn text(&self) -> String {
        match self {
            Self::Context(name) => format!("context:{name}"),
            Self::Argument(pointer) => format!("argument:{pointer}"),
            Self::Lookup { operation, .. } => format!("lookup:{operation}"),
            Self::Content(pointer) => format!("content:{pointer}"),
            Self::Plan => "plan".into(),
            Self::Const(_) => "const".into(),
            Self::Guest => "guest".into(),
        }
    }
}

/// How a guest's copy is judged by the source's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It must be equal; the source's value is written.
    Equal,
    /// A number up to the source's; the guest's is written.
    AtMost,
    /// One of the source's elements; the guest's is written.
    OneOf,
}

/// Which currency an amount is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Currency {
    /// An ISO 4217 code.
    Code(String),
    /// The value of another field of the operation.
    Field(String),
}

/// One declared field of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name; guests use it.
    pub name: String,
    /// Where it is written; none for a key part that is not sent.
    pub at: Option<Place>,
    /// What it is to identity.
    pub role: Role,
    /// Its type.
    pub kind: ValueKind,
    /// Where its value comes from.
    pub source: Source,
    /// How a guest's copy is judged.
    pub rule: Rule,
    /// Applied in this order.
    pub normalize: Vec<Normalizer>,
    /// For `money`.
    pub currency: Option<Currency>,
    /// Smallest number, or shortest text in characters.
    pub min: Option<i64>,
    /// Largest number, longest text in characters, or most bytes.
    pub max: Option<i64>,
    /// May be absent; never for a key part.
    pub optional: bool,
    /// Keep the first resolution per trigger.
    pub pin: bool,
    /// Media type of a part or of a whole body of bytes.
    pub media_type: Option<String>,
    /// File name of a part.
    pub filename: Option<String>,
}

impl Field {
    /// Whether `*` in the source, or `one-of`, makes the guest's copy a choice.
    pub(crate) fn pointer(&self) -> Option<&Pointer> {
        match &self.source {
            Source::Argument(pointer) | Source::Content(pointer) => Some(pointer),
            Source::Lookup { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Whether the field enters the key or the fingerprint.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self.role, Role::Key | Role::Bound)
    }
}
