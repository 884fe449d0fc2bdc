//! A server that answers with exact bytes, keeps exact requests, and counts what it did.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::cases::Step;

/// A request head or body larger than this is none of the host's.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// What is done with a request of that number for that path.
type Play = Arc<dyn Fn(&Heard, usize) -> Vec<Step> + Send + Sync>;

/// One request, byte for byte.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) raw: Vec<u8>,
}

impl Heard {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    pub(super) fn method(&self) -> String {
        self.text().split(' ').next().unwrap_or_default().to_owned()
    }

    pub(super) fn target(&self) -> String {
        self.text().split(' ').nth(1).unwrap_or_default().to_owned()
    }

    pub(super) fn path(&self) -> String {
        self.target().split('?').next().unwrap_or_default().to_owned()
    }

    pub(super) fn head(&self) -> String {
        self.text().split("\r\n\r\n").next().unwrap_or_default().to_owned()
    }

    pub(super) fn body(&self) -> String {
        self.text().split_once("\r\n\r\n").unwrap_or_default().1.to_owned()
    }

    /// All headers of that name, in whatever letters.
    pub(super) fn headers(&self, name: &str) -> Vec<String> {
        let head = self.head();
        let pairs = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let named = pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim().to_owned()).collect()
    }

    /// A member of a form body.
    pub(super) fn form(&self, name: &str) -> Option<String> {
        let body = self.body();
        let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).next()
    }
}

#[derive(Default)]
struct Seen {
    connections: usize,
    heard: Vec<Heard>,
    sent: BTreeMap<String, Vec<u8>>,
}

pub(super) struct Villain {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    play: Arc<Mutex<Option<Play>>>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Villain {
    /// Answers 404 to all until it is told what to do.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let villain = Self { address: listener.local_addr().unwrap(), seen: Arc::default(), play: Arc::default() };
        let (seen, play) = (Arc::clone(&villain.seen), Arc::clone(&villain.play));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                lock(&seen).connections += 1;
                let (seen, play) = (Arc::clone(&seen), Arc::clone(&play));
                // A connection that the host gives up is not this thread's business.
                thread::spawn(move || serve(&stream, &seen, &play).ok());
            }
        });
        villain
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn plays(&self, play: impl Fn(&Heard, usize) -> Vec<Step> + Send + Sync + 'static) {
        *lock(&self.play) = Some(Arc::new(play));
    }

    pub(super) fn connections(&self) -> usize {
        lock(&self.seen).connections
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        lock(&self.seen).heard.clone()
    }

    /// What it has sent to requests whose tag that is, all together.
    pub(super) fn sent(&self, tag: &str) -> Vec<u8> {
        lock(&self.seen).sent.get(tag).cloned().unwrap_or_default()
    }
}

/// What a request is about: the id in its form, or the end of its path.
pub(super) fn tag(heard: &Heard) -> String {
    heard.form("id").unwrap_or_else(|| heard.path().rsplit('/').next().unwrap_or_default().to_owned())
}

fn serve(mut stream: &TcpStream, seen: &Mutex<Seen>, play: &Mutex<Option<Play>>) -> std::io::Result<()> {
    let heard = Heard { raw: request(stream)? };
    let tag = tag(&heard);
    let number = {
        let mut seen = lock(seen);
        let before = seen.heard.iter().filter(|one| self::tag(one) == tag && one.method() == heard.method()).count();
        seen.heard.push(heard.clone());
        before
    };
    // Whoever takes long to answer holds up no other connection.
    let play = lock(play).clone();
    let steps = match play {
        Some(play) => play(&heard, number),
        None => vec![Step::Send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec())],
    };
    let keep = |bytes: &[u8]| {
        if heard.method() == "POST" {
            lock(seen).sent.entry(tag.clone()).or_default().extend_from_slice(bytes);
        }
    };
    for step in steps {
        match step {
            Step::Send(bytes) => {
                keep(&bytes);
                stream.write_all(&bytes)?;
            }
            Step::Wait(ms) => thread::sleep(Duration::from_millis(ms)),
            Step::Drip(ms, bytes) => {
                for byte in bytes {
                    stream.write_all(&[byte])?;
                    keep(&[byte]);
                    thread::sleep(Duration::from_millis(ms));
                }
            }
            Step::Reset => {
                // Else the reset may overtake the bytes in the peer's kernel.
                thread::sleep(Duration::from_millis(150));
                set_socket_linger(stream, Some(Duration::ZERO))?;
                return Ok(());
            }
        }
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// One whole request. What follows it on the connection would be the host's second, and is none.
fn request(mut stream: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let head = raw.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&raw[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
            if raw.len() >= head + 4 + length {
                return Ok(raw);
            }
        }
        let read = stream.read(&mut bytes)?;
        if read == 0 || raw.len() > REQUEST_BYTES_MAX {
            return Ok(raw);
        }
        raw.extend_from_slice(&bytes[..read]);
    }
}

/// A whole right answer.
pub(super) fn json(status: u16, body: &str) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\n");
    vec![Step::Send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())]
}
