//! Asking one name server, and reading an answer that may be hostile.
//!
//! As much of RFC 1035 as addresses need: A and AAAA, aliases within one answer, and the longer way over
//! TCP for an answer that was cut. Every bound is named; what does not fit is no answer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// A lost datagram is sent again after this long.
const TRY_WITHIN: Duration = Duration::from_millis(1_500);
/// So often.
const TRIES: usize = 3;
/// Datagrams that are no answer to the question, after which a try has failed: somebody is guessing.
const STRAYS_MAX: usize = 32;
/// Bytes of an answer; over TCP a server may announce as many.
const ANSWER_BYTES_MAX: usize = u16::MAX as usize;
/// Records of one answer; a name with more is no provider that we know.
const RECORDS_MAX: u16 = 64;
/// Aliases on the way to an address.
const ALIASES_MAX: usize = 8;
/// Bytes of a name, by RFC 1035; and jumps within one that are followed.
const NAME_BYTES_MAX: usize = 253;
const JUMPS_MAX: usize = 32;
const LABEL_BYTES_MAX: usize = 63;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const HEADER_BYTES: usize = 12;

/// The addresses that the server has for the name, of both families.
pub(super) async fn resolve(server: SocketAddr, name: &str) -> Result<Vec<IpAddr>, String> {
    let (four, six) = tokio::join!(ask(server, name, A), ask(server, name, AAAA));
    match (four, six) {
        (Ok(four), Ok(six)) => Ok(four.into_iter().chain(six).collect()),
        // Some servers know nothing of one family. What one of them does not tell is not connected to.
        (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.is_empty() => Ok(found),
        (Err(why), _) | (_, Err(why)) => Err(why),
    }
}

async fn ask(server: SocketAddr, name: &str, kind: u16) -> Result<Vec<IpAddr>, String> {
    let mut last = "the name server did not answer".to_owned();
    for _ in 0..TRIES {
        // A new number and a new port for each: both have to be guessed by whoever forges an answer.
        let question = question(rand::rng().random(), name, kind)?;
        match timeout(TRY_WITHIN, by_datagram(server, &question)).await {
            Ok(Ok(answer)) if is_cut(&answer) => {
                let longer = timeout(TRY_WITHIN, by_stream(server, &question)).await;
                let longer = longer.map_err(|_| last.clone())?.map_err(|error| error.to_string())?;
                return read(&longer, &question, name, kind);
            }
            Ok(Ok(answer)) => return read(&answer, &question, name, kind),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => {}
        }
    }
    Err(last)
}

async fn by_datagram(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    // The kernel then drops what comes from anybody else.
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut bytes = vec![0; ANSWER_BYTES_MAX];
    for _ in 0..STRAYS_MAX {
        let length = socket.recv(&mut bytes).await?;
        if let Some(answer) = bytes.get(..length).filter(|answer| is_answer_to(answer, question)) {
            return Ok(answer.to_vec());
        }
    }
    Err(std::io::Error::other("nothing that came was an answer"))
}

async fn by_stream(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    if is_answer_to(&answer, question) { Ok(answer) } else { Err(std::io::Error::other("what came was no answer")) }
}

/// One question, recursion desired.
fn question(number: u16, name: &str, kind: u16) -> Result<Vec<u8>, String> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("it is no name that a name server knows".to_owned());
    }
    for label in name.split('.') {
        let length =
            u8::try_from(label.len()).ok().filter(|length| (1..=LABEL_BYTES_MAX).contains(&usize::from(*length)));
        bytes.push(length.ok_or("it is no name that a name server knows")?);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    Ok(bytes)
}

/// The same number, marked as an answer, and the same question in it.
fn is_answer_to(answer: &[u8], question: &[u8]) -> bool {
    let (Some(head), Some(asked)) = (answer.get(..HEADER_BYTES), question.get(HEADER_BYTES..)) else { return false };
    let same_number = head.get(..2) == question.get(..2);
    let is_answer = head.get(2).is_some_and(|flags| flags & 0xf8 == 0x80);
    let one_question = head.get(4..6) == Some(&[0, 1]);
    let repeated = answer.get(HEADER_BYTES..HEADER_BYTES + asked.len());
    same_number && is_answer && one_question && repeated.is_some_and(|repeated| repeated.eq_ignore_ascii_case(asked))
}

fn is_cut(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// What the answer says of the name that was asked, its aliases followed.
fn read(answer: &[u8], question: &[u8], name: &str, kind: u16) -> Result<Vec<IpAddr>, String> {
    match answer.get(3).map(|flags| flags & 0x0f) {
        Some(0) => {}
        Some(3) => return Err("there is no such name".to_owned()),
        code => return Err(format!("the name server refused: code {}", code.unwrap_or_default())),
    }
    let odd = || "the name server's answer cannot be read".to_owned();
    let (mut aliases, mut addresses) = (BTreeMap::new(), BTreeMap::<String, Vec<IpAddr>>::new());
    let count = u16::from_be_bytes(answer.get(6..8).and_then(|two| two.try_into().ok()).ok_or_else(odd)?);
    if count > RECORDS_MAX {
        return Err(odd());
    }
    let mut at = question.len();
    for _ in 0..count {
        let record = Record::read(answer, at).ok_or_else(odd)?;
        at = record.end;
        match record.data {
            Data::Alias(other) => drop(aliases.insert(record.owner, other)),
            Data::Address(address) => addresses.entry(record.owner).or_default().push(address),
            Data::Other => {}
        }
    }
    let mut name = name.to_ascii_lowercase();
    for _ in 0..=ALIASES_MAX {
        if let Some(found) = addresses.remove(&name) {
            return Ok(found.into_iter().filter(|address| address.is_ipv4() == (kind == A)).collect());
        }
        match aliases.remove(&name) {
            Some(other) => name = other,
            None => return Ok(Vec::new()),
        }
    }
    Err("the name has too many aliases".to_owned())
}

enum Data {
    Alias(String),
    Address(IpAddr),
    Other,
}

struct Record {
    owner: String,
    data: Data,
    end: usize,
}

impl Record {
    fn read(answer: &[u8], at: usize) -> Option<Self> {
        let (owner, at) = name(answer, at)?;
        let fixed: [u8; 10] = answer.get(at..at.checked_add(10)?)?.try_into().ok()?;
        let [k1, k2, c1, c2, _, _, _, _, l1, l2] = fixed;
        let (from, length) = (at + 10, usize::from(u16::from_be_bytes([l1, l2])));
        let end = from.checked_add(length)?;
        let bytes = answer.get(from..end)?;
        let data = match (u16::from_be_bytes([k1, k2]), u16::from_be_bytes([c1, c2])) {
            (A, INTERNET) => Data::Address(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            (AAAA, INTERNET) => Data::Address(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
            (CNAME, INTERNET) => Data::Alias(name(answer, from)?.0),
            _ => Data::Other,
        };
        Some(Self { owner, data, end })
    }
}

/// A name in lower case, and where the bytes behind it begin. A jump leads backwards only, so none is a loop.
fn name(answer: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut at, mut end, mut text) = (start, None, String::new());
    for _ in 0..JUMPS_MAX + NAME_BYTES_MAX {
        let length = usize::from(*answer.get(at)?);
        match length {
            0 => return Some((text, end.unwrap_or(at + 1))),
            1..=LABEL_BYTES_MAX => {
                let label = answer.get(at + 1..at + 1 + length)?;
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                at += 1 + length;
            }
            0xc0.. => {
                let to = (length & 0x3f) << 8 | usize::from(*answer.get(at + 1)?);
                end.get_or_insert(at + 2);
                at = Some(to).filter(|to| *to < at)?;
            }
            _ => return None,
        }
        if text.len() > NAME_BYTES_MAX {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
        let head = [owner, &kind.to_be_bytes(), &INTERNET.to_be_bytes(), &[0, 0, 0, 60]].concat();
        [head, (data.len() as u16).to_be_bytes().to_vec(), data.to_vec()].concat()
    }

    /// An answer to a question for `pay.example` with these records.
    fn answer(question: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2] = 0x81;
        bytes[3] = 0x80;
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        [bytes, records.concat()].concat()
    }

    fn asked() -> Vec<u8> {
        question(7, "pay.example", A).unwrap()
    }

    const SELF: &[u8] = &[0xc0, 12];
    const CDN: &[u8] = b"\x03cdn\x07example\x00";

    #[test]
    fn addresses_and_aliases_are_read() {
        let question = asked();
        let plain = answer(&question, &[record(SELF, A, &[1, 2, 3, 4])]);
        assert!(is_answer_to(&plain, &question));
        let want: Vec<IpAddr> = vec!["1.2.3.4".parse().unwrap()];
        assert_eq!(read(&plain, &question, "pay.example", A), Ok(want.clone()));
        let alias = answer(&question, &[record(SELF, CNAME, CDN), record(CDN, A, &[1, 2, 3, 4])]);
        assert_eq!(read(&alias, &question, "Pay.Example", A), Ok(want));
        let mut refused = plain.clone();
        refused[3] = 0x83;
        assert!(read(&refused, &question, "pay.example", A).unwrap_err().contains("no such name"));
    }

    #[test]
    fn what_answers_another_question_is_no_answer() {
        let question = asked();
        let right = answer(&question, &[record(SELF, A, &[1, 2, 3, 4])]);
        for (at, to) in [(0, 9), (2, 0x01), (2, 0xf1), (5, 2), (13, b'q'), (question.len() - 3, 28)] {
            let mut wrong = right.clone();
            wrong[at] = to;
            assert!(!is_answer_to(&wrong, &question), "byte {at}");
        }
        // Addresses of names that nobody asked for are not taken.
        let stray = answer(&question, &[record(CDN, A, &[9, 9, 9, 9])]);
        assert_eq!(read(&stray, &question, "pay.example", A), Ok(Vec::new()));
    }

    #[test]
    fn loops_lies_and_floods_end() {
        let question = asked();
        let other = record(CDN, CNAME, b"\x03pay\x07example\x00");
        let ring = answer(&question, &[record(SELF, CNAME, CDN), other]);
        assert_eq!(read(&ring, &question, "pay.example", A), Ok(Vec::new()));
        let to_itself = answer(&question, &[record(&[0xc0, question.len() as u8], A, &[1, 2, 3, 4])]);
        assert!(read(&to_itself, &question, "pay.example", A).is_err());
        let short = answer(&question, &[record(SELF, A, &[1, 2, 3])]);
        assert!(read(&short, &question, "pay.example", A).is_err());
        let mut many = answer(&question, &[]);
        many[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
        assert!(read(&many, &question, "pay.example", A).is_err());
        let whole = answer(&question, &[record(SELF, CNAME, CDN), record(CDN, A, &[1, 2, 3, 4])]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end], &question, "pay.example", A).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn no_bytes_panic() {
        let question = asked();
        let mut random = rand::rng();
        for _ in 0..20_000 {
            let mut bytes = answer(&question, &[record(SELF, CNAME, CDN), record(CDN, A, &[1, 2, 3, 4])]);
            for _ in 0..random.random_range(1..6) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            let _ = is_answer_to(&bytes, &question);
            let _ = read(&bytes, &question, "pay.example", A);
        }
    }

    #[test]
    fn names_that_no_server_knows_are_not_asked() {
        let long = "x".repeat(64);
        for name in ["", ".", "a..b", &long, &format!("{}a", "ab.".repeat(100))] {
            assert!(question(1, name, A).is_err(), "{name}");
        }
    }
}
