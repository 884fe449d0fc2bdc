//! Whether an answer gives away the credential that it was asked with, piece by piece as it arrives.
//!
//! A secret may come in other letters, split between two pieces, or cut by the framing of chunks. Each piece is
//! judged before it is stored, with the end of what came before it; one that ends with the beginning of the secret
//! counts as well, since the next may bring the rest.

use memchr::memmem;
use zeroize::Zeroizing;

use crate::credential::forms::{Forms, base64_at};

/// Bytes of the beginning of a secret at the end of a piece that give it away: fewer are no secret, and stand
/// everywhere.
const BEGINNING_BYTES: usize = 4;
/// Bytes of a form that are enough to look for: shorter ones stand everywhere.
const FORM_BYTES_MIN: usize = 6;
/// Bytes of a chunk's head between two line ends: the size, and extensions within reason.
const CHUNK_HEAD_BYTES_MAX: usize = 64;

/// Bytes that a chunk with one byte takes, with room for an extension.
const CHUNK_OF_ONE_BYTES: usize = 12;

/// The forms in which the beginning of a secret may stand at the end of a piece.
struct Beginnings(Vec<Zeroizing<Vec<u8>>>);

impl Beginnings {
    fn of(secret: &[u8]) -> Self {
        let mut forms = vec![Zeroizing::new(secret.to_vec())];
        let mut add = |form: Vec<u8>| {
            let form = Zeroizing::new(form);
            if form.len() >= FORM_BYTES_MIN && !forms.contains(&form) {
                forms.push(form);
            }
        };
        let percent = |upper| secret.iter().flat_map(move |byte| percent(*byte, upper)).collect();
        add(percent(true));
        add(percent(false));
        add(json(secret));
        add(secret.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
        add(secret.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect());
        for shift in 0..3 {
            base64_at(secret, shift).into_iter().for_each(&mut add);
        }
        Self(forms.into_iter().filter(|form| !form.is_empty()).collect())
    }

    /// Whether these bytes end with the beginning of it.
    fn begin_at_the_end_of(&self, bytes: &[u8]) -> bool {
        let begins = |form: &[u8]| {
            let longest = bytes.len().min(form.len().saturating_sub(1));
            (BEGINNING_BYTES.min(form.len())..=longest).any(|length| bytes.ends_with(&form[..length]))
        };
        self.0.iter().any(|form| begins(form))
    }

    fn longest(&self) -> usize {
        self.0.iter().map(|form| form.len()).max().unwrap_or(0)
    }
}

/// Looks at one answer as it arrives.
pub(crate) struct Watch {
    forms: Forms,
    beginnings: Beginnings,
    /// The end of what came, as far as a secret may reach back into it.
    tail: Zeroizing<Vec<u8>>,
    /// All of a secret was seen.
    seen: bool,
}

impl Watch {
    pub(crate) fn of(secret: &[u8]) -> Self {
        Self { forms: Forms::of(secret), beginnings: Beginnings::of(secret), tail: Zeroizing::default(), seen: false }
    }

    /// Whether the answer holds the secret, of which this is the rest.
    pub(crate) fn ends(&mut self, rest: &[u8]) -> bool {
        self.piece(rest);
        self.seen
    }

    /// Whether the next piece holds some of the secret, or may.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> bool {
        let mut window = std::mem::take(&mut self.tail);
        window.extend_from_slice(bytes);
        let whole = chunked(&window);
        let whole: &[u8] = whole.as_ref().map_or(&[], |whole| whole);
        let all = self.forms.are_in(&window) || self.forms.are_in(whole);
        let beginnings = &self.beginnings;
        let found = all || beginnings.begin_at_the_end_of(&window) || beginnings.begin_at_the_end_of(whole);
        self.seen |= all;
        // Every byte of a secret may be in a chunk of its own.
        let reach = beginnings.longest().saturating_mul(CHUNK_OF_ONE_BYTES);
        let from = window.len().saturating_sub(reach);
        self.tail = Zeroizing::new(window[from..].to_vec());
        found
    }
}

/// The bytes without the heads of chunks, where there are any.
fn chunked(bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let whole = Zeroizing::new(unframed(bytes));
    (whole.len() < bytes.len()).then_some(whole)
}

/// The bytes without what looks like the heads of chunks, whole ones and one that is cut off at the end.
fn unframed(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memmem::find(rest, b"\r\n") {
        whole.extend_from_slice(&rest[..at]);
        let after = &rest[at + 2..];
        let head = &after[..after.len().min(CHUNK_HEAD_BYTES_MAX)];
        match memmem::find(head, b"\r\n") {
            Some(end) if is_chunk_head(&head[..end]) => rest = &after[end + 2..],
            // It may go on in the next piece.
            None if after.len() < CHUNK_HEAD_BYTES_MAX && (after.is_empty() || is_chunk_head(after)) => rest = &[],
            _ => {
                whole.extend_from_slice(b"\r\n");
                rest = after;
            }
        }
    }
    whole.extend_from_slice(rest);
    whole
}

fn is_chunk_head(line: &[u8]) -> bool {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    !size.is_empty() && size.len() <= 16 && size.iter().all(u8::is_ascii_hexdigit)
}

fn percent(byte: u8, upper: bool) -> Vec<u8> {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => vec![byte],
        _ if upper => format!("%{byte:02X}").into_bytes(),
        _ => format!("%{byte:02x}").into_bytes(),
    }
}

fn json(secret: &[u8]) -> Vec<u8> {
    let quoted = serde_json::to_string(&String::from_utf8_lossy(secret)).unwrap_or_default();
    quoted.trim_matches('"').as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::*;

    const SECRET: &[u8] = b"sk_live_51/H8+x=";

    #[test]
    fn a_secret_is_found_in_every_form() {
        let forms = Forms::of(SECRET);
        let text = String::from_utf8_lossy(SECRET).into_owned();
        for echo in [
            format!("you sent {text}!"),
            "x=sk_live_51%2FH8%2Bx%3D&y".to_owned(),
            "x=sk_live_51%2fH8%2bx%3d&y".to_owned(),
            SECRET.iter().map(|byte| format!("{byte:02x}")).collect(),
            base64::prelude::BASE64_STANDARD.encode(SECRET),
            base64::prelude::BASE64_STANDARD.encode(format!("user:{text}")),
            base64::prelude::BASE64_URL_SAFE.encode(format!("ab{text}cd")),
            "3\r\nsk_\r\n5\r\nlive_\r\n8\r\n51/H8+x=\r\n0\r\n\r\n".to_owned(),
        ] {
            let bytes = echo.as_bytes();
            assert!(forms.are_in(bytes) || forms.are_in(&unframed(bytes)), "{echo}");
        }
        for innocent in ["", "sk_live_", "51/H8+x", "HTTP/1.1 200 OK\r\n\r\n{\"id\":\"re_1\"}"] {
            assert!(!forms.are_in(innocent.as_bytes()), "{innocent}");
        }
    }

    #[test]
    fn no_piece_of_a_secret_passes_wherever_it_is_cut() {
        let answer = [b"HTTP/1.1 200 OK\r\n\r\n{\"auth\":\"", SECRET, b"\",\"id\":\"re_1\"}"].concat();
        let begin = answer.windows(SECRET.len()).position(|window| window == SECRET).unwrap();
        let of_secret = begin..begin + SECRET.len();
        for first in 1..answer.len() {
            for second in first..answer.len() {
                let mut watch = Watch::of(SECRET);
                let mut at = 0;
                let mut clear = Vec::new();
                for piece in [&answer[..first], &answer[first..second], &answer[second..]] {
                    if !watch.piece(piece) {
                        clear.extend((at..at + piece.len()).filter(|at| of_secret.contains(at)));
                    }
                    at += piece.len();
                }
                assert!(clear.len() < BEGINNING_BYTES, "{first} {second}: {clear:?}");
            }
        }
    }

    #[test]
    fn no_piece_of_a_secret_passes_in_chunks_of_one_byte() {
        let chunks: Vec<Vec<u8>> = SECRET.iter().map(|byte| [b"1\r\n", &[*byte][..], b"\r\n"].concat()).collect();
        let mut watch = Watch::of(SECRET);
        assert!(!watch.piece(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"));
        let clear = chunks.iter().filter(|chunk| !watch.piece(chunk)).count();
        assert!(clear < BEGINNING_BYTES, "{clear}");
    }

    #[test]
    fn what_has_nothing_of_it_stays_clear() {
        let mut watch = Watch::of(SECRET);
        for _ in 0..100 {
            assert!(!watch.piece(b"{\"id\":\"re_1\",\"object\":\"refund\",\"notes\":\"thanks\"}"));
        }
    }
}
