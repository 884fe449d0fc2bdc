//! A second reader of an answer's framing: where two readers could part, nobody is believed.
//!
//! What an answer proves must not depend on which of two lengths, which end of a line or which of two
//! messages on one connection a reader takes. [`odd`] finds such answers; they say nothing.

/// Interim answers (1xx) before the real one; servers send one or two.
const INTERIM_MAX: usize = 8;
/// Digits of a chunk's size; more would be larger than any answer that is kept.
const CHUNK_DIGITS_MAX: usize = 8;
/// Bytes of all extensions of chunks together; nobody sends any.
const EXTENSION_BYTES_MAX: usize = 4 << 10;

/// Why the bytes of an answer can be read in more than one way, if they can. Bytes that end too early are not odd.
pub(super) fn odd(method: &str, raw: &[u8]) -> Option<&'static str> {
    match read(method, raw) {
        Err(Stop::Odd(why)) => Some(why),
        Err(Stop::Cut) | Ok(_) => None,
    }
}

/// The body of a chunked answer with its chunks put together, as far as it came; none for other answers.
pub(crate) fn joined(raw: &[u8]) -> Option<Vec<u8>> {
    let (head, start) = final_head(raw).ok()?;
    head.chunked.then(|| {
        let mut body = Vec::new();
        // What cannot be read any further is not in it.
        let _ = chunks(raw, start, |part| body.extend_from_slice(part));
        body
    })
}

enum Stop {
    /// The bytes end before the message does.
    Cut,
    Odd(&'static str),
}

/// What a head says about the body behind it.
#[derive(Default)]
struct Head {
    status: u16,
    old: bool,
    lengths: usize,
    length: Option<usize>,
    codings: usize,
    chunked: bool,
}

fn read(method: &str, raw: &[u8]) -> Result<(), Stop> {
    let (head, start) = final_head(raw)?;
    if head.codings > 0 && head.lengths > 0 {
        return Err(Stop::Odd("it has a length and chunks"));
    }
    if head.lengths > 1 || (head.lengths == 1 && head.length.is_none()) {
        return Err(Stop::Odd("its length is not one number"));
    }
    if head.codings > 1 || (head.codings == 1 && !head.chunked) {
        return Err(Stop::Odd("its transfer coding is not `chunked`"));
    }
    if head.old && head.codings > 0 {
        return Err(Stop::Odd("HTTP/1.0 has no transfer codings"));
    }
    if head.status == 101 {
        return Err(Stop::Odd("it switches to another protocol"));
    }
    let end = if method == "HEAD" || [204, 304].contains(&head.status) {
        start
    } else if head.chunked {
        chunks(raw, start, |_| {})?
    } else {
        match head.length {
            Some(length) => start.checked_add(length).filter(|end| *end <= raw.len()).ok_or(Stop::Cut)?,
            // It ends with the connection.
            None => return Ok(()),
        }
    };
    let rest = raw.get(end..).unwrap_or_default();
    if rest.iter().all(|byte| b"\r\n".contains(byte)) { Ok(()) } else { Err(Stop::Odd("something follows behind it")) }
}

/// The head of the answer behind the interim ones, and where its body begins.
fn final_head(raw: &[u8]) -> Result<(Head, usize), Stop> {
    let mut at = 0;
    for _ in 0..=INTERIM_MAX {
        let (head, next) = one_head(raw, at)?;
        at = next;
        if head.status >= 200 || head.status == 101 {
            return Ok((head, at));
        }
    }
    Err(Stop::Odd("it has too many interim answers"))
}

fn one_head(raw: &[u8], start: usize) -> Result<(Head, usize), Stop> {
    let (first, mut at) = line(raw, start)?;
    let mut head = status_line(first)?;
    loop {
        let (text, next) = line(raw, at)?;
        at = next;
        if text.is_empty() {
            return Ok((head, at));
        }
        header(text, &mut head)?;
    }
}

/// One line without its end, which is CR LF and nothing else.
fn line(raw: &[u8], start: usize) -> Result<(&[u8], usize), Stop> {
    let rest = raw.get(start..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest).ok_or(Stop::Cut)?;
    let text = rest.get(..end).unwrap_or_default();
    match text.strip_suffix(b"\r") {
        Some(text) if memchr::memchr2(b'\r', 0, text).is_none() => Ok((text, start + end + 1)),
        _ => Err(Stop::Odd("a line of its head has a bare CR, a bare LF or a zero byte")),
    }
}

fn status_line(text: &[u8]) -> Result<Head, Stop> {
    let odd = Stop::Odd("it does not begin with a status of HTTP/1.1");
    let Some((version, rest)) = text.split_at_checked(9) else { return Err(odd) };
    let old = match version {
        b"HTTP/1.1 " => false,
        b"HTTP/1.0 " => true,
        _ => return Err(odd),
    };
    let digits = rest.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let ended = rest.get(3).is_none_or(|byte| *byte == b' ');
    let status = digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|text| text.parse().ok());
    match status {
        Some(status @ 100..=599) if ended => Ok(Head { status, old, ..Head::default() }),
        _ => Err(odd),
    }
}

fn header(text: &[u8], head: &mut Head) -> Result<(), Stop> {
    let colon = memchr::memchr(b':', text).ok_or(Stop::Odd("a line of its head is no header"))?;
    let (name, value) = text.split_at(colon);
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        // A folded line begins with a space, which no name does.
        return Err(Stop::Odd("a line of its head is no header"));
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    if name.eq_ignore_ascii_case(b"content-length") {
        head.lengths += 1;
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        head.length = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        head.codings += 1;
        head.chunked = value.eq_ignore_ascii_case(b"chunked");
    }
    Ok(())
}

/// Walks the chunks and the trailers behind them; gives where they end.
fn chunks(raw: &[u8], start: usize, mut part: impl FnMut(&[u8])) -> Result<usize, Stop> {
    let (mut at, mut extensions) = (start, 0);
    loop {
        let (text, next) = line(raw, at)?;
        let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = text.get(..digits).filter(|digits| (1..=CHUNK_DIGITS_MAX).contains(&digits.len()));
        let size = size.and_then(|digits| std::str::from_utf8(digits).ok());
        let size = size.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let size = size.ok_or(Stop::Odd("the size of a chunk is no number"))?;
        let extension = text.get(digits..).unwrap_or_default();
        extensions += extension.len();
        if extension.first().is_some_and(|byte| *byte != b';') || extensions > EXTENSION_BYTES_MAX {
            return Err(Stop::Odd("more than a number stands where the size of a chunk does"));
        }
        at = next;
        if size == 0 {
            return trailers(raw, at);
        }
        let end = at + size;
        part(raw.get(at..end.min(raw.len())).unwrap_or_default());
        match raw.get(end..end + 2) {
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Err(Stop::Odd("a chunk does not end where its size says")),
            None => return Err(Stop::Cut),
        }
    }
}

/// Trailers are nobody's: they are read to their end, and forgotten.
fn trailers(raw: &[u8], start: usize) -> Result<usize, Stop> {
    let mut at = start;
    loop {
        let (text, next) = line(raw, at)?;
        at = next;
        if text.is_empty() {
            return Ok(at);
        }
        let mut nobodys = Head::default();
        header(text, &mut nobodys)?;
        if nobodys.lengths + nobodys.codings > 0 {
            return Err(Stop::Odd("a trailer says how the message is framed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_answers_are_not_odd() {
        for plain in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nto the end",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
            "HTTP/1.1 200 OK\r\nContent-Le",
        ] {
            assert_eq!(odd("POST", plain.as_bytes()), None, "{plain:?}");
        }
        assert_eq!(odd("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), None);
    }

    #[test]
    fn what_two_readers_read_differently_is_odd() {
        for two in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 402 No\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n{}",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n",
        ] {
            assert!(odd("POST", two.as_bytes()).is_some(), "{two:?}");
        }
        let flood = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(20) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert!(odd("POST", flood.as_bytes()).is_some());
    }

    #[test]
    fn chunks_are_put_together_as_far_as_they_came() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let join = |body: &str| joined(format!("{head}{body}").as_bytes()).map(|body| String::from_utf8(body).unwrap());
        assert_eq!(join("3\r\nsk_\r\n4\r\ntest\r\n0\r\n\r\n").as_deref(), Some("sk_test"));
        assert_eq!(join("3\r\nsk_\r\n4\r\nte").as_deref(), Some("sk_te"));
        assert_eq!(join("3\r\nsk_\r\nzz\r\nte").as_deref(), Some("sk_"));
        assert_eq!(joined(b"HTTP/1.1 200 OK\r\n\r\n2\r\nok\r\n0\r\n\r\n"), None);
    }
}
