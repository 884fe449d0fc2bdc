//! Values of MySQL and MariaDB, exactly: decimals and times as text, bytes in base64.

use mysql_async::consts::ColumnType;
use mysql_async::{Column, Value as Sql};
use serde_json::Value as Json;

use crate::database::DatabaseError;
use crate::database::rows;

/// The character set of what is bytes and no text.
const BINARY: u16 = 63;

/// The value of a column.
pub(super) fn column(column: &Column, value: Sql) -> Result<Json, DatabaseError> {
    let kind = column.column_type();
    match value {
        Sql::NULL => Ok(Json::Null),
        Sql::Int(number) => Ok(number.into()),
        Sql::UInt(number) => Ok(number.into()),
        Sql::Float(number) => Ok(rows::single(number)),
        Sql::Double(number) => Ok(rows::float(number)),
        Sql::Date(..) | Sql::Time(..) => time(kind, &value),
        Sql::Bytes(bytes) => match kind {
            ColumnType::MYSQL_TYPE_JSON => rows::document(&bytes),
            ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => rows::text(&bytes),
            ColumnType::MYSQL_TYPE_BIT | ColumnType::MYSQL_TYPE_GEOMETRY => Ok(rows::bytes(&bytes)),
            _ if column.character_set() == BINARY => Ok(rows::bytes(&bytes)),
            _ => rows::text(&bytes),
        },
    }
}

/// ISO text; a time stamp is of UTC, to which the session was set.
fn time(kind: ColumnType, value: &Sql) -> Result<Json, DatabaseError> {
    let unusable = || DatabaseError::Unusable("a time does not read".to_owned());
    let fraction = |micros: u32| match micros {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    };
    match (kind, value) {
        (ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE, Sql::Date(year, month, day, ..)) => {
            Ok(format!("{year:04}-{month:02}-{day:02}").into())
        }
        (_, Sql::Date(year, month, day, hour, minute, second, micros)) => {
            let zone = if kind == ColumnType::MYSQL_TYPE_TIMESTAMP { "Z" } else { "" };
            let fraction = fraction(*micros);
            Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}").into())
        }
        (_, Sql::Time(negative, days, hours, minutes, seconds, micros)) => {
            let sign = if *negative { "-" } else { "" };
            let hours = u64::from(*days) * 24 + u64::from(*hours);
            Ok(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", fraction(*micros)).into())
        }
        _ => Err(unusable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_iso_text() {
        let date = Sql::Date(2026, 1, 2, 3, 4, 5, 60_000);
        let said = |kind, value: &Sql| time(kind, value).unwrap();
        assert_eq!(said(ColumnType::MYSQL_TYPE_DATE, &date), "2026-01-02");
        assert_eq!(said(ColumnType::MYSQL_TYPE_DATETIME, &date), "2026-01-02T03:04:05.06");
        assert_eq!(said(ColumnType::MYSQL_TYPE_TIMESTAMP, &date), "2026-01-02T03:04:05.06Z");
        assert_eq!(said(ColumnType::MYSQL_TYPE_TIME, &Sql::Time(true, 2, 1, 2, 3, 0)), "-49:02:03");
    }
}
