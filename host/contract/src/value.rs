//! Values that guests, sources and the host exchange, and their one canonical text.

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// One value of a field. There is no float: a float has no single text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A decimal number as text.
    Decimal(String),
    /// A truth value.
    Boolean(bool),
    /// A JSON document.
    Json(Json),
    /// Bytes.
    Bytes(#[serde(with = "base64_text")] Vec<u8>),
}

impl Value {
    /// The word a contract uses for this type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "integer",
            Self::Decimal(_) => "decimal",
            Self::Boolean(_) => "boolean",
            Self::Json(_) => "json",
            Self::Bytes(_) => "bytes",
        }
    }

    /// The canonical text: what keys and fingerprints are made of when no normaliser says more.
    ///
    /// Integers and decimals have no leading or trailing zeros, JSON has sorted members, bytes are
    /// their SHA-256 in hex; text is itself, exactly.
    pub fn canonical(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Decimal(text) => crate::decimal::canonical(text).unwrap_or_else(|_| text.clone()),
            Self::Boolean(truth) => truth.to_string(),
            Self::Json(json) => crate::json::canonical(json),
            Self::Bytes(bytes) => hex(&Sha256::digest(bytes)),
        }
    }

    /// A JSON value as a field value; null and absent are none.
    ///
    /// # Errors
    /// A number that has no exact decimal form is refused.
    pub fn from_json(json: &Json) -> Result<Option<Self>, String> {
        Ok(Some(match json {
            Json::Null => return Ok(None),
            Json::Bool(truth) => Self::Boolean(*truth),
            Json::String(text) => Self::Text(text.clone()),
            Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), _, _) => Self::Integer(integer),
                (_, Some(big), _) => Self::Decimal(big.to_string()),
                (_, _, Some(float)) => Self::Decimal(exact_float(float)?),
                _ => return Err("the number cannot be read exactly".into()),
            },
            Json::Array(_) | Json::Object(_) => Self::Json(json.clone()),
        }))
    }
}

/// A float that came from at most 15 digits of text is that text; others are refused.
fn exact_float(float: f64) -> Result<String, String> {
    let text = float.to_string();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if float.is_finite() && digits <= 15 {
        Ok(text)
    } else {
        Err("a floating-point number has no exact text; the provider's number is too long".into())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn base64_encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn base64_decode(text: &str) -> Result<Vec<u8>, String> {
    base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| format!("not base64: {e}"))
}

/// Bytes as base64 in every serialised form: JSON arrays of numbers take four times the room.
pub(crate) mod base64_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::base64_encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        super::base64_decode(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}
