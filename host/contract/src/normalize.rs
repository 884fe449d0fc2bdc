//! The closed list of normalisers. Their results are fixed by vectors and never change: a better one
//! gets a new name, because a changed result is a changed effect key, and that is a second effect.

mod address;
mod money;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::decimal;
use crate::field::ValueKind;
use crate::value::Value;

pub(crate) use money::{Money, currency_exponent};

/// One normaliser of the closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalizer {
    /// White space at both ends goes.
    Trim,
    /// Lower case, as Unicode says.
    Lower,
    /// Upper case, as Unicode says.
    Upper,
    /// Unicode normalisation form C.
    Nfc,
    /// One mail address: trimmed, NFC, lower case, the domain in ASCII form.
    Email,
    /// One telephone number: `+` and digits.
    E164,
    /// Lower case with hyphens.
    Uuid,
    /// No leading or trailing zeros, no plus sign.
    Decimal,
    /// Minor units and the currency's code: `50000 USD`.
    Money,
    /// `2026-11-30`.
    Date,
    /// Digits without leading zeros.
    Integer,
}

const ALL: &[(&str, Normalizer)] = &[
    ("trim", Normalizer::Trim),
    ("lower", Normalizer::Lower),
    ("upper", Normalizer::Upper),
    ("nfc", Normalizer::Nfc),
    ("email", Normalizer::Email),
    ("e164", Normalizer::E164),
    ("uuid", Normalizer::Uuid),
    ("decimal", Normalizer::Decimal),
    ("money", Normalizer::Money),
    ("date", Normalizer::Date),
    ("integer", Normalizer::Integer),
];

impl Normalizer {
    /// The normaliser of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, normalizer)| *normalizer)
    }

    /// Its name in contracts.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(_, normalizer)| *normalizer == self).map_or("", |(name, _)| name)
    }

    /// All names.
    pub fn names() -> Vec<&'static str> {
        ALL.iter().map(|(name, _)| *name).collect()
    }

    /// Whether it only changes the spelling of a text, so that another may follow.
    pub(crate) fn is_textual(self) -> bool {
        matches!(self, Self::Trim | Self::Lower | Self::Upper | Self::Nfc)
    }

    /// Whether it can be declared for a field of that type.
    pub(crate) fn accepts(self, kind: ValueKind) -> bool {
        match self {
            Self::Money => matches!(kind, ValueKind::Integer | ValueKind::Decimal | ValueKind::Text),
            Self::Decimal => matches!(kind, ValueKind::Decimal | ValueKind::Text),
            Self::Integer => matches!(kind, ValueKind::Integer | ValueKind::Text),
            // Before a number they clean its text.
            Self::Trim => !matches!(kind, ValueKind::Json | ValueKind::Bytes | ValueKind::Boolean),
            _ => kind == ValueKind::Text,
        }
    }
}

/// The normal form of a value under one normaliser; `currency` is for `money` only.
///
/// # Errors
/// A text that tells why the value has no such form.
pub fn normalize(normalizer: Normalizer, value: &Value, currency: Option<&str>) -> Result<String, String> {
    if normalizer == Normalizer::Money {
        let currency = currency.ok_or("an amount needs its currency")?;
        return Money::read(value, currency).map(|money| money.normal());
    }
    let text = plain_text(value)?;
    match normalizer {
        Normalizer::Trim => Ok(text.trim().to_owned()),
        Normalizer::Lower => Ok(text.to_lowercase()),
        Normalizer::Upper => Ok(text.to_uppercase()),
        Normalizer::Nfc => Ok(text.nfc().collect()),
        Normalizer::Email => address::email(&text),
        Normalizer::E164 => address::e164(&text),
        Normalizer::Uuid => uuid::Uuid::try_parse(text.trim())
            .map(|uuid| uuid.hyphenated().to_string())
            .map_err(|_| "not a UUID".into()),
        Normalizer::Decimal => decimal::canonical(text.trim()),
        Normalizer::Integer => decimal::canonical_integer(text.trim()),
        Normalizer::Date => date(text.trim()),
        Normalizer::Money => Err("an amount needs its currency".into()),
    }
}

fn plain_text(value: &Value) -> Result<String, String> {
    match value {
        Value::Text(text) | Value::Decimal(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        other => Err(format!("{} has no text to normalise", other.type_name())),
    }
}

/// A calendar date without time: a time would need a zone to be a date.
fn date(text: &str) -> Result<String, String> {
    let bad = || "not a calendar date such as 2026-11-30 (a time of day has no place here)".to_owned();
    let digits: String = match (text.len(), text.is_ascii()) {
        (8, true) => text.to_owned(),
        (10, true) if text.get(4..5) == Some("-") && text.get(7..8) == Some("-") => {
            [text.get(..4), text.get(5..7), text.get(8..)].into_iter().flatten().collect()
        }
        _ => return Err(bad()),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let part = |range: std::ops::Range<usize>| digits.get(range).and_then(|d| d.parse::<i16>().ok()).ok_or_else(bad);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let small = |n: i16| i8::try_from(n).map_err(|_| bad());
    let date = jiff::civil::Date::new(year, small(month)?, small(day)?).map_err(|_| bad())?;
    Ok(format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()))
}
