//! Durations as contracts write them: a whole number and one unit.

use std::time::Duration;

use crate::limits::DURATION_SECONDS_MAX;

/// Parses `500ms`, `90s`, `5m`, `24h` or `30d`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("\"{}\" is not a duration; write 500ms, 90s, 5m, 24h or 30d", super::reader::short(text));
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| bad())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => return Err(bad()),
    };
    match millis {
        Some(millis) if millis / 1000 <= DURATION_SECONDS_MAX => Ok(Duration::from_millis(millis)),
        _ => Err("the duration is longer than ten years".into()),
    }
}
