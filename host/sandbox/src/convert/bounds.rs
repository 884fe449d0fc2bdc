//! How much one conversion may make, and how a value is named in an error.

use serde_json::Value;

use super::VALUES_MAX;

/// Counts the values of one conversion.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: usize,
}

impl Budget {
    /// False when there are too many.
    pub(super) const fn take(&mut self) -> bool {
        self.used += 1;
        self.used <= VALUES_MAX
    }
}

/// A value's kind, and the value itself where it is harmless and short.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => named_text(text),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}

fn named_text(text: &str) -> String {
    let safe = oncegate_contract::safe_text(text);
    if safe == text && text.len() <= 40 {
        format!("the text {text}")
    } else {
        format!("a text of {} characters", text.chars().count())
    }
}
