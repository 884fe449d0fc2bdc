//! Values of PostgreSQL: bound as text, which the server reads as what it compares them with; answered
//! in binary, which no setting of a session can change.

use std::error::Error;
use std::fmt::Write as _;

use oncegate_contract::Value;
use serde_json::Value as Json;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::database::DatabaseError;
use crate::database::rows;

/// A bound value in the server's text form.
#[derive(Debug)]
pub(super) struct Bound(Option<String>);

impl Bound {
    pub(super) fn of(value: Option<&Value>) -> Self {
        Self(value.map(|value| match value {
            Value::Text(text) | Value::Decimal(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            Value::Json(json) => json.to_string(),
            Value::Bytes(bytes) => bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
                // Writing into a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            }),
        }))
    }

    pub(super) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl ToSql for Bound {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            None => Ok(IsNull::Yes),
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A column's bytes as they came.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The value of a column, exactly.
pub(super) fn column(row: &Row, at: usize, kind: &Type) -> Result<Json, DatabaseError> {
    let raw: Raw<'_> = row.try_get(at).map_err(|error| DatabaseError::Unusable(error.to_string()))?;
    raw.0.map_or(Ok(Json::Null), |bytes| value(kind, bytes))
}

fn value(kind: &Type, bytes: &[u8]) -> Result<Json, DatabaseError> {
    match kind.kind() {
        Kind::Array(inner) => return array(inner, bytes),
        Kind::Enum(_) => return rows::text(bytes),
        Kind::Domain(inner) => return value(inner, bytes),
        _ => {}
    }
    let broken = || DatabaseError::Unusable(format!("a value of type {} does not read", kind.name()));
    match kind.name() {
        "bool" => Ok(Json::from(bytes.first().ok_or_else(broken)? != &0)),
        "int2" => Ok(Json::from(i16::from_be_bytes(fixed(bytes, kind)?))),
        "int4" => Ok(Json::from(i32::from_be_bytes(fixed(bytes, kind)?))),
        "int8" => Ok(Json::from(i64::from_be_bytes(fixed(bytes, kind)?))),
        "oid" => Ok(Json::from(u32::from_be_bytes(fixed(bytes, kind)?))),
        "float4" => Ok(rows::single(f32::from_be_bytes(fixed(bytes, kind)?))),
        "float8" => Ok(rows::float(f64::from_be_bytes(fixed(bytes, kind)?))),
        "numeric" => numeric(bytes).map(Json::from).ok_or_else(broken),
        "text" | "varchar" | "bpchar" | "name" | "char" | "citext" | "unknown" | "xml" => rows::text(bytes),
        "json" => rows::document(bytes),
        // A version byte, then the text.
        "jsonb" => rows::document(bytes.strip_prefix(&[1]).ok_or_else(broken)?),
        "bytea" => Ok(rows::bytes(bytes)),
        "uuid" => uuid(&fixed(bytes, kind)?).ok_or_else(broken),
        "date" => date(i32::from_be_bytes(fixed(bytes, kind)?)).ok_or_else(broken),
        "time" => time(i64::from_be_bytes(fixed(bytes, kind)?)).ok_or_else(broken),
        "timestamp" => instant(i64::from_be_bytes(fixed(bytes, kind)?), "").ok_or_else(broken),
        "timestamptz" => instant(i64::from_be_bytes(fixed(bytes, kind)?), "Z").ok_or_else(broken),
        // What a function gives that gives nothing.
        "void" => Ok(Json::Null),
        other => Err(DatabaseError::Unusable(format!("a column has the type {other}: cast it to text"))),
    }
}

fn fixed<const N: usize>(bytes: &[u8], kind: &Type) -> Result<[u8; N], DatabaseError> {
    bytes.try_into().map_err(|_| DatabaseError::Unusable(format!("a value of type {} does not read", kind.name())))
}

/// Digits to the base 10,000, as the server sends them, in decimal text with the column's own scale.
fn numeric(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at * 2..at * 2 + 2)?.try_into().ok()?));
    let (count, weight, sign, scale) = (word(0)?, word(1)? as i16, word(2)?, usize::from(word(3)?));
    match sign {
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => {}
    }
    let digit = |place: i32| -> Option<u16> {
        match usize::try_from(place) {
            Ok(place) if place < usize::from(count) => word(4 + place),
            _ => Some(0),
        }
    };
    let mut text = if sign == 0x4000 { "-".to_owned() } else { String::new() };
    let mut whole = String::new();
    for place in 0..=i32::from(weight) {
        let _ = write!(whole, "{:04}", digit(place)?);
    }
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        let mut fraction = String::new();
        let mut place = i32::from(weight) + 1;
        while fraction.len() < scale {
            let group = if place < 0 { 0 } else { digit(place)? };
            let _ = write!(fraction, "{group:04}");
            place += 1;
        }
        text.push('.');
        text.push_str(fraction.get(..scale)?);
    }
    Some(text)
}

fn uuid(bytes: &[u8; 16]) -> Option<Json> {
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?, hex.get(20..)?];
    Some(parts.join("-").into())
}

/// Days since 2000-01-01, which the server counts from.
fn date(days: i32) -> Option<Json> {
    match days {
        i32::MAX => Some("infinity".into()),
        i32::MIN => Some("-infinity".into()),
        days => {
            let date = jiff::civil::date(2000, 1, 1).checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
            Some(date.to_string().into())
        }
    }
}

/// Microseconds since midnight; the end of a day is 24:00:00 to the server.
fn time(micros: i64) -> Option<Json> {
    if micros == 86_400_000_000 {
        return Some("24:00:00".into());
    }
    let span = jiff::Span::new().try_microseconds(micros).ok()?;
    let time = jiff::civil::Time::midnight().checked_add(span).ok()?;
    Some(time.to_string().into())
}

/// Microseconds since 2000-01-01; with a zone they are of UTC.
fn instant(micros: i64, zone: &str) -> Option<Json> {
    match micros {
        i64::MAX => return Some("infinity".into()),
        i64::MIN => return Some("-infinity".into()),
        _ => {}
    }
    let span = jiff::Span::new().try_microseconds(micros).ok()?;
    let at = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0).checked_add(span).ok()?;
    Some(format!("{at}{zone}").into())
}

/// An array of one dimension.
fn array(inner: &Type, bytes: &[u8]) -> Result<Json, DatabaseError> {
    let broken = || DatabaseError::Unusable("an array does not read, or has several dimensions".to_owned());
    let word = |at: usize| -> Option<i32> { Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let count = match word(0).ok_or_else(broken)? {
        0 => return Ok(Json::Array(Vec::new())),
        1 => word(12).ok_or_else(broken)?,
        _ => return Err(broken()),
    };
    // Dimensions, flags and element type, then length and lower bound of the one dimension.
    let mut at = 20;
    let mut elements = Vec::new();
    for _ in 0..count {
        let length = word(at).ok_or_else(broken)?;
        at += 4;
        let Ok(length) = usize::try_from(length) else {
            elements.push(Json::Null);
            continue;
        };
        elements.push(value(inner, bytes.get(at..at + length).ok_or_else(broken)?)?);
        at += length;
    }
    Ok(Json::Array(elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(weight: i16, sign: u16, scale: u16, groups: &[u16]) -> Vec<u8> {
        let head = [u16::try_from(groups.len()).unwrap(), weight as u16, sign, scale];
        head.iter().chain(groups).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn decimals_are_exact() {
        for (bytes, text) in [
            (digits(0, 0, 2, &[12, 5000]), "12.50"),
            (digits(0, 0x4000, 2, &[12, 5000]), "-12.50"),
            (digits(1, 0, 0, &[1, 2]), "10002"),
            (digits(1, 0, 0, &[1]), "10000"),
            (digits(-1, 0, 4, &[12]), "0.0012"),
            (digits(-2, 0, 8, &[12]), "0.00000012"),
            (digits(0, 0, 0, &[]), "0"),
            (digits(0, 0, 2, &[]), "0.00"),
            (digits(4, 0, 0, &[9, 9999, 9999, 9999, 9999]), "99999999999999999"),
            (digits(0, 0xC000, 0, &[]), "NaN"),
        ] {
            assert_eq!(numeric(&bytes).as_deref(), Some(text));
        }
        assert_eq!(numeric(&[0, 1]), None);
    }

    #[test]
    fn times_are_iso_text() {
        assert_eq!(date(0), Some("2000-01-01".into()));
        assert_eq!(date(-1), Some("1999-12-31".into()));
        assert_eq!(date(i32::MAX), Some("infinity".into()));
        assert_eq!(instant(1_500_000, "Z"), Some("2000-01-01T00:00:01.5Z".into()));
        assert_eq!(instant(-1, ""), Some("1999-12-31T23:59:59.999999".into()));
        assert_eq!(time(3_600_000_000), Some("01:00:00".into()));
        assert_eq!(instant(i64::MAX - 1, "Z"), None);
    }

    #[test]
    fn bytes_from_a_server_never_panic() {
        for kind in [Type::INT8, Type::NUMERIC, Type::UUID, Type::DATE, Type::JSONB, Type::INT4_ARRAY, Type::BOOL] {
            for length in 0..24 {
                let _ = value(&kind, &vec![0xff; length]);
                let _ = value(&kind, &vec![0; length]);
            }
        }
    }
}
