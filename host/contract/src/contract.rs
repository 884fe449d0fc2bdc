//! A whole contract: the author's closed declaration of all a component could ever do.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::error::ContractErrors;
use crate::field::Source;
use crate::operation::{EffectClass, Operation};

/// `[component]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The contract's name.
    pub name: String,
    /// `none`: then no tool in it may cause an effect.
    pub effect: EffectClass,
}

/// `[endpoint.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL unless policy binds another.
    pub url: String,
    /// The credential's name in policy.
    pub credential: Option<String>,
}

/// `[tool.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The operations it may ask for.
    pub operations: Vec<String>,
    /// At most so many effects per call.
    pub effects: u32,
}

/// The author's declaration, parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// `[component]`.
    pub component: Component,
    /// By name.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// By name.
    pub tools: BTreeMap<String, Tool>,
    /// By name.
    pub operations: BTreeMap<String, Operation>,
    /// The text, as it was written.
    pub text: String,
    /// The line of each key, for errors that are found later.
    pub(crate) lines: BTreeMap<String, usize>,
}

impl Contract {
    /// Parses and checks a contract; `file` is only used in errors.
    ///
    /// # Errors
    /// Everything that is wrong with the text, each with file, line and key. Keys that this version
    /// does not know are errors too.
    pub fn parse(file: &str, text: &str) -> Result<Self, ContractErrors> {
        crate::parse::contract(file, text)
    }

    /// What a component without a contract declares: nothing, so it can do nothing outside itself.
    pub fn undeclared(name: &str) -> Self {
        Self {
            component: Component { name: name.to_owned(), effect: EffectClass::None },
            endpoints: BTreeMap::new(),
            tools: BTreeMap::new(),
            operations: BTreeMap::new(),
            text: String::new(),
            lines: BTreeMap::new(),
        }
    }

    /// The SHA-256 of the text.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// The facts from the orchestrator that the operations of a tool need.
    ///
    /// These are the facts a guest may ask for by `context.get`.
    pub fn context_facts(&self, tool: &str) -> BTreeSet<&str> {
        let names = self.tools.get(tool).map(|t| t.operations.as_slice()).unwrap_or_default();
        names.iter().filter_map(|name| self.operations.get(name)).flat_map(facts).collect()
    }

    /// The line where a key stands; the nearest enclosing one when the key itself is absent.
    pub fn line(&self, key: &str) -> usize {
        let mut at = key;
        loop {
            if let Some(line) = self.lines.get(at) {
                return *line;
            }
            match at.rfind(['.', '[']) {
                Some(end) => at = at.get(..end).unwrap_or_default(),
                None => return 1,
            }
        }
    }
}

fn facts(operation: &Operation) -> Vec<&str> {
    let from_fields = operation.fields.iter().filter_map(|field| match &field.source {
        Source::Context(name) => Some(name.as_str()),
        Source::Plan => Some("plan"),
        _ => None,
    });
    let mut names: Vec<_> = from_fields.collect();
    if let Some(scope) = operation.repeat {
        names.extend(["sequence", scope.as_str()]);
    }
    names.extend(operation.fields.iter().any(|field| field.pin).then_some("trigger"));
    names
}
