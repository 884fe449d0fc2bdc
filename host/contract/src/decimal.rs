//! Exact decimal text: one canonical spelling, and comparison without floats.

use std::cmp::Ordering;

use crate::limits::DECIMAL_DIGITS_MAX;

/// Sign, whole digits without leading zeros, fraction without trailing zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) negative: bool,
    pub(crate) whole: String,
    pub(crate) fraction: String,
}

impl Decimal {
    /// Reads digits, at most one sign in front and one point between digits.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
        let count = rest.len() - usize::from(rest.contains('.'));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err("not a decimal number: digits, one sign in front, one point, as in 12.50".into());
        }
        if count > DECIMAL_DIGITS_MAX {
            return Err(format!("a number has at most {DECIMAL_DIGITS_MAX} digits"));
        }
        let whole = whole.trim_start_matches('0').to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        Ok(Self { negative, whole, fraction })
    }

    pub(crate) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let whole = if self.whole.is_empty() { "0" } else { &self.whole };
        if self.fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{}", self.fraction) }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let magnitude = |d: &Self| (d.whole.len(), d.whole.clone(), d.fraction.clone());
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => magnitude(self).cmp(&magnitude(other)),
            (true, true) => magnitude(other).cmp(&magnitude(self)),
        }
    }

    /// The number times ten to the power `places`, if that is whole.
    pub(crate) fn scaled(&self, places: usize) -> Option<String> {
        let missing = places.checked_sub(self.fraction.len())?;
        let digits = format!("{}{}{}", self.whole, self.fraction, "0".repeat(missing));
        let digits = digits.trim_start_matches('0');
        let sign = if self.negative { "-" } else { "" };
        Some(if digits.is_empty() { "0".into() } else { format!("{sign}{digits}") })
    }
}

/// Whether one decimal number is above another; none when either is no number.
pub fn is_above(number: &str, bound: &str) -> Option<bool> {
    let (number, bound) = (Decimal::parse(number).ok()?, Decimal::parse(bound).ok()?);
    Some(number.compare(&bound) == Ordering::Greater)
}

pub(crate) fn canonical(text: &str) -> Result<String, String> {
    Decimal::parse(text).map(|decimal| decimal.text())
}

/// Whole digits only: `007` and `+7` are `7`, `7.0` is not a whole number here.
pub(crate) fn canonical_integer(text: &str) -> Result<String, String> {
    let decimal = Decimal::parse(text).map_err(|_| "not a whole number: digits and one sign in front")?;
    if text.contains('.') {
        return Err("not a whole number: it has a point".into());
    }
    Ok(decimal.text())
}
