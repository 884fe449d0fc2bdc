//! Every form in which an answer may give a secret away, and taking it out.
//!
//! A net and not a wall: whoever means to give a secret away can always find a form that is not here. The wall
//! is that it is shown to nobody but the endpoint that the policy names.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use memchr::memmem;
use zeroize::Zeroizing;

/// Shorter secrets are looked for as they are, and in no other form: that would be found everywhere.
const FORMS_FROM_BYTES: usize = 8;
/// Bytes of an answer that are decoded at once.
const WINDOW_BYTES: usize = 256 << 10;
/// Bytes that one byte takes at most where it is escaped: `\u005f`.
const ESCAPE_BYTES_MAX: usize = 6;

/// A secret in all its forms.
pub(crate) struct Forms {
    forms: Vec<Zeroizing<Vec<u8>>>,
}

impl Forms {
    pub(crate) fn of(secret: &[u8]) -> Self {
        let mut forms = vec![secret.to_vec()];
        if secret.len() >= FORMS_FROM_BYTES {
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            forms.push(hex.to_uppercase().into_bytes());
            forms.push(hex.into_bytes());
            forms.push(secret.iter().rev().copied().collect());
            forms.extend((0..3).flat_map(|shift| base64_at(secret, shift)));
            // What is sent as `Basic …` is known by its decoded form as well.
            let decoded = BASE64_STANDARD.decode(secret).or_else(|_| BASE64_URL_SAFE_NO_PAD.decode(secret));
            forms.extend(decoded.ok().filter(|decoded| decoded.len() >= FORMS_FROM_BYTES));
        }
        forms.retain(|form| !form.is_empty());
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self { forms: forms.into_iter().map(Zeroizing::new).collect() }
    }

    /// Whether the bytes hold the secret in any form.
    pub(crate) fn are_in(&self, bytes: &[u8]) -> bool {
        self.found(bytes, &mut |_| true)
    }

    /// Overwrites the secret in place, in every form: lengths and offsets stay as they are.
    pub(crate) fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut places = Vec::new();
        self.found(&bytes, &mut |place| {
            places.push(place);
            false
        });
        // One that is in the secret could make the secret anew, of what stood before it.
        let plain = |byte: &u8| self.forms.iter().all(|form| !form.contains(byte));
        let filler = (b'*'..=b'~').find(plain).unwrap_or(b'*');
        let mut clean = bytes;
        for place in places {
            if let Some(part) = clean.get_mut(place) {
                part.fill(filler);
            }
        }
        clean
    }

    /// Tells each place where a form stands, plain or escaped, until `enough` says so.
    fn found(&self, bytes: &[u8], enough: &mut dyn FnMut(std::ops::Range<usize>) -> bool) -> bool {
        for form in &self.forms {
            for at in memmem::find_iter(bytes, form.as_slice()) {
                if enough(at..at + form.len()) {
                    return true;
                }
            }
        }
        [(b'\\', unescaped as Decode), (b'%', unquoted as Decode), (b'&', unreferred as Decode)]
            .into_iter()
            .any(|(sign, decode)| memchr::memchr(sign, bytes).is_some() && self.found_decoded(bytes, decode, enough))
    }

    fn found_decoded(
        &self,
        bytes: &[u8],
        decode: Decode,
        enough: &mut dyn FnMut(std::ops::Range<usize>) -> bool,
    ) -> bool {
        let longest = self.forms.iter().map(|form| form.len()).max().unwrap_or_default();
        let overlap = longest * ESCAPE_BYTES_MAX;
        let mut start = 0;
        while start < bytes.len() {
            let end = bytes.len().min(start + WINDOW_BYTES + overlap);
            let window = bytes.get(start..end).unwrap_or_default();
            let (plain, places) = decoded(window, decode);
            for form in &self.forms {
                for at in memmem::find_iter(&plain, form.as_slice()) {
                    let (from, last) = (places.get(at), places.get(at + form.len()));
                    let from = start + from.copied().unwrap_or_default();
                    let to = start + last.copied().unwrap_or(window.len());
                    if enough(from..to) {
                        return true;
                    }
                }
            }
            start += WINDOW_BYTES;
        }
        false
    }
}

/// The characters of the secret's base64 that do not depend on what stands before and behind it, in both alphabets.
pub(crate) fn base64_at(secret: &[u8], shift: usize) -> [Vec<u8>; 2] {
    let shifted = [&[0; 2][..shift], secret].concat();
    // Whole groups of three bytes are written as four characters; those that hold a bit of others are left out.
    let from = (shift * 8).div_ceil(6);
    let to = shifted.len() * 8 / 6;
    let core = |text: String| text.as_bytes().get(from..to).unwrap_or_default().to_vec();
    [core(BASE64_STANDARD_NO_PAD.encode(&shifted)), core(BASE64_URL_SAFE_NO_PAD.encode(&shifted))]
}

/// What stands at the beginning of the bytes, and how many of them say it.
type Decode = fn(&[u8]) -> (u8, usize);

/// The text behind the escapes, and where each of its bytes stands.
fn decoded(window: &[u8], decode: Decode) -> (Vec<u8>, Vec<usize>) {
    let (mut plain, mut places, mut at) = (Vec::with_capacity(window.len()), Vec::with_capacity(window.len()), 0);
    while let Some(rest) = window.get(at..).filter(|rest| !rest.is_empty()) {
        let (byte, length) = decode(rest);
        plain.push(byte);
        places.push(at);
        at += length;
    }
    (plain, places)
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    u32::from_str_radix(std::str::from_utf8(digits?).ok()?, 16).ok().and_then(|number| u8::try_from(number).ok())
}

fn itself(rest: &[u8]) -> (u8, usize) {
    (rest.first().copied().unwrap_or_default(), 1)
}

/// JSON: `\/`, `\u0073`.
fn unescaped(rest: &[u8]) -> (u8, usize) {
    match rest {
        [b'\\', b'u' | b'U', ..] => hex(rest.get(2..6)).map_or((b'\\', 1), |byte| (byte, 6)),
        [b'\\', b'x' | b'X', ..] => hex(rest.get(2..4)).map_or((b'\\', 1), |byte| (byte, 4)),
        [b'\\', byte @ (b'"' | b'\\' | b'/' | b'\''), ..] => (*byte, 2),
        _ => itself(rest),
    }
}

/// URLs and forms: `%73`.
fn unquoted(rest: &[u8]) -> (u8, usize) {
    match rest.first() {
        Some(b'%') => hex(rest.get(1..3)).map_or((b'%', 1), |byte| (byte, 3)),
        _ => itself(rest),
    }
}

/// HTML and XML: `&#115;`, `&#x73;`, and the named ones that a secret could have.
fn unreferred(rest: &[u8]) -> (u8, usize) {
    const NAMED: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = NAMED.iter().find(|(name, _)| rest.starts_with(name)) {
        return (*byte, name.len());
    }
    let Some(number) = rest.strip_prefix(b"&#") else { return itself(rest) };
    let Some(end) = number.iter().take(ESCAPE_BYTES_MAX - 2).position(|byte| *byte == b';') else {
        return itself(rest);
    };
    let text = number.get(..end).unwrap_or_default();
    let byte = match text.strip_prefix(b"x").or_else(|| text.strip_prefix(b"X")) {
        Some(digits) => hex(Some(digits)),
        None => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
    };
    byte.map_or_else(|| itself(rest), |byte| (byte, end + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sk_live/4+f9=Qz!";

    fn scrubbed(text: &str) -> String {
        let forms = Forms::of(SECRET);
        let clean = forms.scrub(text.as_bytes().to_vec());
        assert_eq!(clean.len(), text.len());
        assert_eq!(forms.are_in(text.as_bytes()), clean != text.as_bytes(), "{text}");
        String::from_utf8(clean).unwrap()
    }

    #[test]
    fn every_form_is_taken_out() {
        let secret = std::str::from_utf8(SECRET).unwrap();
        let hex: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
        let quoted: String = SECRET.iter().map(|byte| format!("%{byte:02X}")).collect();
        let escaped: String = SECRET.iter().map(|byte| format!("\\u{byte:04x}")).collect();
        let referred: String = SECRET.iter().map(|byte| format!("&#{byte};")).collect();
        let reversed: String = secret.chars().rev().collect();
        let partly = secret.replace('/', "\\/").replace('_', "\\u005F");
        for form in [secret, &hex, &hex.to_uppercase(), &quoted, &escaped, &referred, &reversed, &partly] {
            let text = format!("a {form} b {form}");
            let clean = scrubbed(&text);
            assert_eq!(clean, format!("a {0} b {0}", "*".repeat(form.len())), "{form}");
        }
        let url = "sk_live%2F4%2Bf9%3DQz%21";
        assert_eq!(scrubbed(url), "*".repeat(url.len()));
    }

    #[test]
    fn base64_is_found_whatever_stands_around_it() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "x", "yz"] {
                let text = [before.as_bytes(), SECRET, after.as_bytes()].concat();
                for coded in [BASE64_STANDARD.encode(&text), BASE64_URL_SAFE_NO_PAD.encode(&text)] {
                    let clean = scrubbed(&coded);
                    assert!(clean.matches('*').count() * 6 >= (SECRET.len() - 2) * 8, "{coded}: {clean}");
                }
            }
        }
    }

    #[test]
    fn a_basic_secret_is_known_decoded_too() {
        let forms = Forms::of(BASE64_STANDARD.encode("user:swordfish").as_bytes());
        assert!(forms.are_in(b"hello user:swordfish"));
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in ["nothing here", "sk_live", "%73%zz\\u00", "&#;&#x;&#99999;\\", ""] {
            assert_eq!(scrubbed(text), text);
        }
        let short = Forms::of(b"abc");
        assert_eq!(short.scrub(b"abc cba 616263".to_vec()), b"*** cba 616263");
        assert!(!Forms::of(b"").are_in(b"anything"));
    }

    #[test]
    fn no_window_hides_it() {
        let escaped: String = SECRET.iter().map(|byte| format!("\\u{byte:04x}")).collect();
        for shift in (0..escaped.len() + 2).step_by(5) {
            let text = format!("{}{escaped} end", "x".repeat(WINDOW_BYTES - shift));
            assert!(!scrubbed(&text).contains("\\u"), "{shift}");
        }
    }
}
