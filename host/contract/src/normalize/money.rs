//! Amounts in minor units of their currency, whichever way they were written.

use iso_currency::Currency;

use crate::decimal::Decimal;
use crate::value::Value;

/// Currencies whose number of decimals is not two; part of the vectors, so they are written here.
const EXPONENTS: &[(usize, &[&str])] = &[
    (
        0,
        &[
            "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF",
            "XOF", "XPF",
        ],
    ),
    (3, &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"]),
    (4, &["CLF", "UYW"]),
];

/// How many decimals a currency has; none for what is no currency code.
pub(crate) fn currency_exponent(code: &str) -> Option<usize> {
    Currency::from_code(code)?;
    let listed = EXPONENTS.iter().find(|(_, codes)| codes.contains(&code));
    Some(listed.map_or(2, |(exponent, _)| *exponent))
}

/// An amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Money {
    minor: String,
    code: String,
    exponent: usize,
}

impl Money {
    /// Reads an integer (minor units), a decimal or text (major units), or text with a code.
    pub(crate) fn read(value: &Value, currency: &str) -> Result<Self, String> {
        let code = currency.trim().to_ascii_uppercase();
        let exponent = currency_exponent(&code).ok_or("the currency is not an ISO 4217 code")?;
        let minor = match value {
            Value::Integer(minor) => minor.to_string(),
            Value::Decimal(major) => minor_units(major, exponent)?,
            Value::Text(text) => minor_units(amount_text(text, &code)?, exponent)?,
            other => return Err(format!("{} is not an amount", other.type_name())),
        };
        Ok(Self { minor, code, exponent })
    }

    pub(crate) fn normal(&self) -> String {
        format!("{} {}", self.minor, self.code)
    }

    pub(crate) fn minor(&self) -> Result<i64, String> {
        self.minor.parse().map_err(|_| "the amount is too large".into())
    }

    /// The amount in major units with the currency's full number of decimals.
    pub(crate) fn major(&self) -> String {
        let (sign, digits) = self.minor.strip_prefix('-').map_or(("", self.minor.as_str()), |d| ("-", d));
        let padded = format!("{digits:0>width$}", width = self.exponent + 1);
        let (whole, fraction) = padded.split_at(padded.len() - self.exponent);
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }
}

fn minor_units(major: &str, exponent: usize) -> Result<String, String> {
    let decimal = Decimal::parse(major)?;
    decimal.scaled(exponent).ok_or_else(|| format!("this currency has {exponent} decimals; the amount has more"))
}

/// The number in `500`, `500.00 USD` or `USD 500`.
fn amount_text<'a>(text: &'a str, code: &str) -> Result<&'a str, String> {
    let mut words = text.split_whitespace();
    let is_code = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_alphabetic());
    let (number, named) = match (words.next(), words.next(), words.next()) {
        (Some(number), None, None) => (number, None),
        (Some(number), Some(named), None) if is_code(named) => (number, Some(named)),
        (Some(named), Some(number), None) if is_code(named) => (number, Some(named)),
        _ => return Err("not an amount such as 500, 500.00, 500 USD or USD 500".into()),
    };
    match named {
        Some(named) if !named.eq_ignore_ascii_case(code) => {
            Err(format!("the amount is in another currency than {code}"))
        }
        _ => Ok(number),
    }
}
