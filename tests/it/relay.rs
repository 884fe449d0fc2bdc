//! Something between the host and its provider: it can go away, hide objects from lists, and keep a
//! request to send it later.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use oncegate_tests::client::Client;

/// What it does with what passes.
#[derive(Default)]
struct Way {
    /// Lists that ask for this say that there is nothing.
    hides: Mutex<Option<String>>,
    /// The next request that acts is kept and not answered.
    keeps: AtomicBool,
    kept: Mutex<Vec<Passing>>,
    passed: AtomicUsize,
}

/// One request.
#[derive(Clone)]
struct Passing {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A running relay.
pub(crate) struct Relay {
    address: SocketAddr,
    upstream: String,
    way: Arc<Way>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Relay {
    /// In front of that server.
    pub(crate) fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut relay = Self { address, upstream: upstream.to_owned(), way: Arc::default(), running: None };
        relay.serve(listener);
        relay
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lists that ask for this show nothing from now on.
    pub(crate) fn hide(&self, what: &str) {
        *self.way.hides.lock().unwrap() = Some(what.to_owned());
    }

    /// Keeps the next request that acts, and closes its connection.
    pub(crate) fn keep_next(&self) {
        self.way.keeps.store(true, Ordering::SeqCst);
    }

    /// Sends what it kept. How much that was.
    pub(crate) fn send_kept(&self) -> usize {
        let kept: Vec<Passing> = self.way.kept.lock().unwrap().drain(..).collect();
        for passing in &kept {
            forward(&self.upstream, passing);
        }
        kept.len()
    }

    /// How many requests were passed on.
    pub(crate) fn passed(&self) -> usize {
        self.way.passed.load(Ordering::SeqCst)
    }

    /// Nobody listens any more: connections are refused.
    pub(crate) fn go_away(&mut self) {
        let Some((ends, thread)) = self.running.take() else { return };
        ends.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).ok();
        thread.join().unwrap();
    }

    /// Listens again at the same address.
    pub(crate) fn come_back(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.serve(listener);
    }

    fn serve(&mut self, listener: TcpListener) {
        let ends = Arc::new(AtomicBool::new(false));
        let (way, upstream, end) = (Arc::clone(&self.way), self.upstream.clone(), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (way, upstream) = (Arc::clone(&way), upstream.clone());
                thread::spawn(move || way.pass(&stream, &upstream));
            }
        });
        self.running = Some((ends, thread));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.go_away();
    }
}

impl Way {
    fn pass(&self, mut stream: &TcpStream, upstream: &str) -> Option<()> {
        let passing = read(stream)?;
        if passing.method != "GET" && self.keeps.swap(false, Ordering::SeqCst) {
            self.kept.lock().unwrap().push(passing);
            return None;
        }
        let hides = self.hides.lock().unwrap().clone();
        let hidden = hides.is_some_and(|what| passing.method == "GET" && passing.target.contains(&what));
        let (status, body) = if hidden {
            (200, br#"{"object":"list","data":[],"has_more":false}"#.to_vec())
        } else {
            self.passed.fetch_add(1, Ordering::SeqCst);
            forward(upstream, &passing)
        };
        let head = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.into_bytes(), body].concat()).ok()
    }
}

fn forward(upstream: &str, passing: &Passing) -> (u16, Vec<u8>) {
    let named = passing.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let own = ["host", "content-length", "connection"];
    let headers: Vec<(&str, &str)> = named.filter(|(name, _)| !own.contains(name)).collect();
    Client::new(upstream).send(&passing.method, &passing.target, &headers, &passing.body).unwrap_or((502, Vec::new()))
}

fn read(stream: &TcpStream) -> Option<Passing> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Some(0), |(_, value)| value.parse().ok())?];
    reader.read_exact(&mut body).ok()?;
    Some(Passing { method, target, headers, body })
}
