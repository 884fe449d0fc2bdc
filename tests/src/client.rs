//! A small blocking HTTP client: the controls of the fake provider, and servers like it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::provider::Logged;
use crate::provider::domains::{Effect, Settings};
use crate::provider::mode::{Mode, Rule};

/// No control takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Speaks with one server on loopback, a connection for each request.
#[derive(Clone, Debug)]
pub struct Client {
    /// `HOST:PORT`.
    address: String,
    answer_within: Duration,
}

impl Client {
    /// For a URL such as `http://127.0.0.1:8080`.
    pub fn new(url: &str) -> Self {
        Self::within(url, ANSWER_WITHIN)
    }

    /// One that waits so long for the next bytes of an answer.
    pub fn within(url: &str, answer_within: Duration) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        Self { address: address.to_owned(), answer_within }
    }

    /// The number behind the colon of its address.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap_or_default()
    }

    /// Sends one request and returns status and body.
    ///
    /// # Errors
    /// There is no server, or what it says is no HTTP answer.
    pub fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(u16, Vec<u8>)> {
        let mut stream =
            TcpStream::connect(&self.address).with_context(|| format!("nobody listens on {}", self.address))?;
        stream.set_read_timeout(Some(self.answer_within))?;
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut bytes = request.into_bytes();
        bytes.extend(b"\r\n");
        bytes.extend(body);
        stream.write_all(&bytes)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        split(&answer).with_context(|| format!("{method} {target}: no HTTP answer"))
    }

    /// Sends JSON (none: no body) and reads the JSON of a 2xx answer.
    ///
    /// # Errors
    /// As [`Client::send`], and any other status.
    pub fn json(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let headers = [("Content-Type", "application/json")];
        let (status, answer) = self.send(method, target, &headers, body.as_bytes())?;
        if !(200..300).contains(&status) {
            let answer = String::from_utf8_lossy(&answer);
            bail!("{method} {target} was answered {status}: {answer}");
        }
        serde_json::from_slice(&answer).with_context(|| format!("{method} {target}: no JSON"))
    }

    /// The next `times` requests for that method and path meet the mode; none is all.
    ///
    /// # Errors
    /// As [`Client::json`], like all that follow.
    pub fn mode(&self, mode: Mode, method: &str, path: &str, times: Option<u64>) -> Result<()> {
        self.rule(&Rule { mode, path: path.to_owned(), method: Some(method.to_owned()), after: 0, times, every: None })
    }

    /// Adds a rule behind the others.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn rule(&self, rule: &Rule) -> Result<()> {
        self.control(&json!(rule))
    }

    /// Forgets the rules.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn clear(&self) -> Result<()> {
        self.control(&json!({ "clear": true }))
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn settings(&self, settings: &Settings) -> Result<()> {
        self.control(&json!({ "settings": settings }))
    }

    fn control(&self, body: &Value) -> Result<()> {
        self.json("POST", "/_control", Some(body)).map(|_| ())
    }

    /// Adds or replaces objects: `{"returns": […], "orders": […], "customers": […]}`.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn seed(&self, objects: &Value) -> Result<()> {
        self.json("POST", "/_seed", Some(objects)).map(|_| ())
    }

    /// Forgets effects, rules, settings, seeds and log.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn reset(&self) -> Result<()> {
        self.json("POST", "/_reset", None).map(|_| ())
    }

    /// How many effects of each kind there were: the oracle.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn counts(&self) -> Result<BTreeMap<String, usize>> {
        let effects = self.json("GET", "/_effects", None)?;
        Ok(serde_json::from_value(effects["counts"].clone())?)
    }

    /// How many effects of one kind there were.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn count(&self, kind: &str) -> Result<usize> {
        let counts = self.counts()?;
        counts.get(kind).copied().with_context(|| format!("the provider counts no {kind}"))
    }

    /// How many requests a mode spoiled.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn met(&self) -> Result<u64> {
        self.json("GET", "/_met", None)?["met"].as_u64().context("the provider does not say")
    }

    /// What happened, in order.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn effects(&self) -> Result<Vec<Effect>> {
        let effects = self.json("GET", "/_effects", None)?;
        Ok(serde_json::from_value(effects["effects"].clone())?)
    }

    /// Every request of the business, in order.
    ///
    /// # Errors
    /// See [`Client::mode`].
    pub fn log(&self) -> Result<Vec<Logged>> {
        Ok(serde_json::from_value(self.json("GET", "/_log", None)?)?)
    }
}

/// Status and body of a whole answer; joins chunks.
fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &answer[end + 4..];
    if head.to_ascii_lowercase().contains("\r\ntransfer-encoding:") {
        Some((status, join_chunks(body)?))
    } else {
        Some((status, body.to_vec()))
    }
}

fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|two| two == b"\r\n")?;
        let length = std::str::from_utf8(&rest[..line_end]).ok()?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let start = line_end + 2;
        body.extend(rest.get(start..start + length)?);
        rest = rest.get(start + length + 2..)?;
    }
}
