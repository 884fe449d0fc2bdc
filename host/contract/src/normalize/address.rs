//! Mail addresses and telephone numbers: exactly one each, in one spelling.

use unicode_normalization::UnicodeNormalization;

/// The longest local part that mail allows.
const LOCAL_BYTES_MAX: usize = 64;
/// The longest address that mail allows.
const EMAIL_BYTES_MAX: usize = 254;

/// One address. Tags (`+x`) and dots stay: whether they matter is the provider's affair.
pub(super) fn email(text: &str) -> Result<String, String> {
    let text: String = text.trim().nfc().collect();
    let separators = |c: char| c.is_whitespace() || c.is_control() || ",;<>()[]\\\":".contains(c);
    if text.contains(separators) || text.matches('@').count() != 1 {
        return Err("not exactly one mail address: no names, lists, quotes or spaces, one @".into());
    }
    let (local, domain) = text.split_once('@').unwrap_or_default();
    let dots = local.starts_with('.') || local.ends_with('.') || local.contains("..");
    if local.is_empty() || dots {
        return Err("the part before the @ is empty or has a dot in the wrong place".into());
    }
    let local: String = local.to_lowercase().nfc().collect();
    let domain = match url::Host::parse(domain) {
        Ok(url::Host::Domain(ascii)) if !ascii.ends_with('.') && !domain.contains('%') => ascii,
        _ => return Err("the part after the @ is not a domain name".into()),
    };
    if local.len() > LOCAL_BYTES_MAX || local.len() + 1 + domain.len() > EMAIL_BYTES_MAX {
        return Err(format!("a mail address has at most {EMAIL_BYTES_MAX} bytes, {LOCAL_BYTES_MAX} before the @"));
    }
    Ok(format!("{local}@{domain}"))
}

/// One international number. A national one would need a country that nobody stated.
pub(super) fn e164(text: &str) -> Result<String, String> {
    let spacing = |c: char| matches!(c, ' ' | '\u{a0}' | '\u{202f}' | '-' | '\u{2010}' | '\u{2011}' | '.' | '(' | ')');
    let Some(rest) = text.trim().strip_prefix('+') else {
        return Err("not an international telephone number: it begins with + and the country".into());
    };
    if rest.contains("(0)") {
        return Err("the (0) in a telephone number is ambiguous; leave it out".into());
    }
    let digits: String = rest.chars().filter(|c| !spacing(*c)).collect();
    let good =
        (7..=15).contains(&digits.len()) && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    if good { Ok(format!("+{digits}")) } else { Err("not exactly one telephone number: + and 7 to 15 digits".into()) }
}
