//! The same over HTTP, in both revisions, with headers of the test's own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::ANSWER_WITHIN;
use crate::harness::{Run, Running};

/// The revision with a handshake.
pub const OLDER: &str = "2025-11-25";
/// The revision in which each request stands for itself.
pub const NEWER: &str = "2026-07-28";

/// `oncegate serve … --http 127.0.0.1:0`. Dropping it kills it.
pub struct Server {
    running: Running,
    address: String,
}

impl Server {
    /// Starts it and reads where it is.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(command: &mut Command) -> Result<Self> {
        let running = Running::start(command.args(["--http", "127.0.0.1:0", "--json"]))?;
        let line = running.read_line(ANSWER_WITHIN).context("no address was printed")?;
        let told: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let url = told["url"].as_str().with_context(|| line.clone())?;
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        Ok(Self { running, address })
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A client with this token.
    pub fn client(&self, token: &str) -> Client {
        let capabilities = json!({});
        Client { address: self.address.clone(), token: token.to_owned(), headers: Vec::new(), capabilities }
    }

    /// What it has written to standard error until now.
    pub fn errors(&self) -> String {
        self.running.errors()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(self) -> Result<Run> {
        self.running.kill()
    }

    /// Waits for the end of a server that was told to end.
    ///
    /// # Errors
    /// It does not come in that time.
    pub fn wait(self, within: Duration) -> Result<Run> {
        self.running.wait_more(within)
    }
}

/// Speaks with one server, a connection for each request.
#[derive(Clone)]
pub struct Client {
    address: String,
    token: String,
    /// Headers that each request has besides.
    pub headers: Vec<(String, String)>,
    /// What it declares in each request of the newer revision.
    pub capabilities: Value,
}

impl Client {
    /// Speaks with whatever listens there.
    pub fn at(address: &str, token: &str) -> Self {
        Self { address: address.to_owned(), token: token.to_owned(), headers: Vec::new(), capabilities: json!({}) }
    }

    /// Calls a tool; the whole result.
    ///
    /// # Errors
    /// It is answered with an error, or not.
    pub fn call(&self, revision: &str, tool: &str, arguments: &Value) -> Result<Value> {
        self.ask(revision, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// It is answered with an error, or not.
    pub fn ask(&self, revision: &str, method: &str, params: &Value) -> Result<Value> {
        let (status, body) = self.send(&self.request(revision, method, params))?;
        let mut answer: Value = serde_json::from_str(&body).with_context(|| format!("{status}: {body}"))?;
        if status != 200 || answer.get("result").is_none() {
            bail!("{method} {params} was answered {status}: {answer}");
        }
        Ok(answer["result"].take())
    }

    /// Sends a request; all that comes of it, the answer last.
    ///
    /// # Errors
    /// There is no HTTP answer, or there is no JSON in it.
    pub fn hear(&self, revision: &str, method: &str, params: &Value) -> Result<Vec<Value>> {
        let (status, body) = self.send(&self.request(revision, method, params))?;
        let json = |text: &str| serde_json::from_str(text).with_context(|| format!("{status}: {body}"));
        if body.starts_with('{') {
            return Ok(vec![json(&body)?]);
        }
        // Each event is a line of its own; others are the framing's.
        body.lines().filter_map(|line| line.strip_prefix("data: ")).map(json).collect()
    }

    /// The bytes of one request.
    pub fn request(&self, revision: &str, method: &str, params: &Value) -> Vec<u8> {
        let mut params = params.clone();
        let mut headers = vec![("MCP-Protocol-Version".to_owned(), revision.to_owned())];
        if revision == NEWER {
            headers.push(("Mcp-Method".to_owned(), method.to_owned()));
            if let Some(name) = params["name"].as_str().or(params["taskId"].as_str()) {
                headers.push(("Mcp-Name".to_owned(), name.to_owned()));
            }
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(revision);
            if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            }
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.bytes(&headers, body.to_string().as_bytes())
    }

    /// The bytes of a POST with any body.
    pub fn bytes(&self, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nAuthorization: Bearer {}\r\n",
            self.address,
            body.len(),
            self.token
        );
        for (name, value) in self.headers.iter().chain(headers) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut bytes = head.into_bytes();
        bytes.extend(b"\r\n");
        bytes.extend(body);
        bytes
    }

    /// Sends bytes and reads status and body to the end.
    ///
    /// # Errors
    /// There is no HTTP answer.
    pub fn send(&self, bytes: &[u8]) -> Result<(u16, String)> {
        send(&self.address, bytes)
    }

    /// Sends bytes and leaves the connection open, unread.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn leave_open(&self, bytes: &[u8]) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(bytes)?;
        Ok(stream)
    }
}

/// Sends bytes to an address and reads status and body to the end.
///
/// # Errors
/// There is no HTTP answer.
pub fn send(address: &str, bytes: &[u8]) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    // Whoever is refused early does not read on; the answer is there all the same.
    let written = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer)
        && answer.is_empty()
    {
        written?;
        return Err(error.into());
    }
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("no HTTP answer: {answer}"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}
