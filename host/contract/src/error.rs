//! What is wrong with a contract, by file, line and key; and what is wrong with one field's value.

use std::fmt;

/// One error of a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, as a path: `operation.create-refund.fields[2].at`; empty for syntax errors.
    pub key: String,
    /// What was asked, what is wrong, what to do.
    pub message: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, message } = self;
        if key.is_empty() {
            write!(f, "{file}:{line}: {message}")
        } else {
            write!(f, "{file}:{line}: {key}: {message}")
        }
    }
}

/// All errors of a contract, in the order of their lines; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractErrors(Vec<ContractError>);

impl ContractErrors {
    /// Wraps the errors that were found; none means there is nothing to report.
    pub(crate) fn new(mut errors: Vec<ContractError>) -> Option<Self> {
        errors.sort_by(|a, b| (a.line, &a.key).cmp(&(b.line, &b.key)));
        errors.dedup();
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Exactly one error.
    pub(crate) fn single(error: ContractError) -> Self {
        Self(vec![error])
    }

    /// The errors, in the order of their lines.
    pub fn errors(&self) -> &[ContractError] {
        &self.0
    }

    /// The errors, owned.
    pub fn into_errors(self) -> Vec<ContractError> {
        self.0
    }
}

impl fmt::Display for ContractErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ContractErrors {}

/// Why the fields of one operation cannot be resolved, keyed or rendered. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A value is missing, undeclared, of the wrong type, out of bounds or contradicts its source.
    #[error("field {field}: {message}")]
    Invalid {
        /// The field's name, cleaned for showing.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// The orchestrator did not give a fact that the operation needs.
    #[error("context {name} is missing: the orchestrator must give it; there is no default")]
    ContextMissing {
        /// The fact's name.
        name: String,
    },
}

impl FieldError {
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid { field: crate::label::safe_text(field), message: message.into() }
    }
}
