//! The answer of a database as JSON, row by row, up to the caps.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::DatabaseError;

/// An answer that is being written.
pub(super) struct Rows {
    columns: Vec<String>,
    body: Vec<u8>,
    count: u32,
    rows_max: u32,
    bytes_max: usize,
    truncated: bool,
}

impl Rows {
    /// An answer with these columns.
    ///
    /// A name that stands twice is refused: two readers of such a row may disagree about what it says.
    pub(super) fn new(columns: Vec<String>, rows_max: u32, bytes_max: usize) -> Result<Self, DatabaseError> {
        let mut seen = BTreeSet::new();
        for name in &columns {
            if !seen.insert(name) {
                let name = oncegate_contract::safe_text(name);
                return Err(DatabaseError::Unusable(format!("two columns are called {name}: give them names by AS")));
            }
        }
        Ok(Self { columns, body: b"{\"rows\":[".to_vec(), count: 0, rows_max, bytes_max, truncated: false })
    }

    /// Adds a row, values in the order of the columns; false when no more are wanted.
    pub(super) fn push(&mut self, values: Vec<Json>) -> bool {
        let row: Map<String, Json> = self.columns.iter().cloned().zip(values).collect();
        self.push_object(row)
    }

    /// Adds a row that has its own names.
    pub(super) fn push_object(&mut self, row: Map<String, Json>) -> bool {
        let text = Json::Object(row).to_string();
        if self.truncated || self.count >= self.rows_max || self.body.len() + text.len() + 1 > self.bytes_max {
            self.truncated = true;
            return false;
        }
        if self.count > 0 {
            self.body.push(b',');
        }
        self.body.extend_from_slice(text.as_bytes());
        self.count += 1;
        true
    }

    /// Says that there is more than was added.
    pub(super) fn cut(&mut self) {
        self.truncated = true;
    }

    /// The whole document.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.body.extend_from_slice(format!("],\"truncated\":{}}}", self.truncated).as_bytes());
        self.body
    }
}

/// A floating-point number; what JSON has no number for is a text.
pub(super) fn float(number: f64) -> Json {
    serde_json::Number::from_f64(number).map_or_else(|| Json::from(number.to_string()), Json::Number)
}

/// The shortest decimal text of a single-precision number, as a number.
pub(super) fn single(number: f32) -> Json {
    number.to_string().parse().map_or_else(|_| Json::from(number.to_string()), float)
}

/// Bytes in base64.
pub(super) fn bytes(bytes: &[u8]) -> Json {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes).into()
}

/// Text that must be UTF-8.
pub(super) fn text(bytes: &[u8]) -> Result<Json, DatabaseError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DatabaseError::Unusable("a text is not UTF-8".to_owned()))?;
    Ok(text.into())
}

/// A JSON document that a column holds.
pub(super) fn document(bytes: &[u8]) -> Result<Json, DatabaseError> {
    oncegate_contract::parse_json(bytes).map_err(DatabaseError::Unusable)
}
