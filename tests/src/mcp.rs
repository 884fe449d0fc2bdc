//! A small MCP client of our own over standard input and output, revision 2025-11-25: it shows each
//! message as it was written, which a real client does not.

pub mod conformance;
pub mod cut;
pub mod drivers;
pub mod http;
pub mod inspector;
pub mod npm;
pub mod sdk;
pub mod sessions;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::harness::{Run, Running};

/// No answer takes longer, on a busy machine.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A server that runs as this client's child. Dropping it kills it.
pub struct Stdio {
    running: Running,
    next: i64,
    /// Messages that were no answers to what was waited for.
    pub heard: Vec<Value>,
}

impl Stdio {
    /// Starts `oncegate serve …` and shakes hands.
    ///
    /// # Errors
    /// It does not start, or not as MCP does.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::able(command, &json!({}))
    }

    /// The same, for a client that declares these capabilities.
    ///
    /// # Errors
    /// As [`Stdio::start`].
    pub fn able(command: &mut Command, capabilities: &Value) -> Result<Self> {
        let mut client = Self::unopened(command)?;
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "oncegate-tests", "version": "1" },
        });
        let id = client.request("initialize", &hello)?;
        let answer = client.answer(id, ANSWER_WITHIN)?;
        if answer["result"]["protocolVersion"] != "2025-11-25" {
            bail!("no hand was shaken: {answer}");
        }
        client.notify("notifications/initialized", &json!({}))?;
        Ok(client)
    }

    /// Starts it and says nothing.
    ///
    /// # Errors
    /// It does not start.
    pub fn unopened(command: &mut Command) -> Result<Self> {
        Ok(Self { running: Running::start(command)?, next: 0, heard: Vec::new() })
    }

    /// Writes one line as it is.
    ///
    /// # Errors
    /// The server has gone.
    pub fn write(&mut self, line: &str) -> Result<()> {
        self.running.write_line(line)
    }

    /// Writes bytes as they are, without the end of a line.
    ///
    /// # Errors
    /// The server has gone.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.running.write_bytes(bytes)
    }

    /// Sends a request and returns its id.
    ///
    /// # Errors
    /// The server has gone.
    pub fn request(&mut self, method: &str, params: &Value) -> Result<i64> {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write(&message.to_string())?;
        Ok(self.next)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The server has gone.
    pub fn notify(&mut self, method: &str, params: &Value) -> Result<()> {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string())
    }

    /// The next message, whatever it is.
    ///
    /// # Errors
    /// None comes in that time, or it is no JSON.
    pub fn message(&mut self, within: Duration) -> Result<Value> {
        let line = self.running.read_line(within)?;
        serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))
    }

    /// The answer to a request; other messages go to [`Stdio::heard`].
    ///
    /// # Errors
    /// It does not come in that time.
    pub fn answer(&mut self, id: i64, within: Duration) -> Result<Value> {
        if let Some(at) = self.heard.iter().position(|message| is_answer(message, id)) {
            return Ok(self.heard.remove(at));
        }
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.message(left).with_context(|| format!("request {id} was not answered"))?;
            if is_answer(&message, id) {
                return Ok(message);
            }
            self.heard.push(message);
        }
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// It is answered with an error, or not.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.request(method, params)?;
        let mut answer = self.answer(id, ANSWER_WITHIN)?;
        if answer.get("result").is_none() {
            bail!("{method} {params} was answered {answer}");
        }
        Ok(answer["result"].take())
    }

    /// The next request of the server's own, or its notification, of this name.
    ///
    /// # Errors
    /// None comes in that time.
    pub fn asked(&mut self, method: &str, within: Duration) -> Result<Value> {
        let until = Instant::now() + within;
        loop {
            if let Some(at) = self.heard.iter().position(|message| message["method"] == method) {
                return Ok(self.heard.remove(at));
            }
            let left = until.saturating_duration_since(Instant::now());
            let message = self.message(left).with_context(|| format!("no {method} came: {:?}", self.heard))?;
            self.heard.push(message);
        }
    }

    /// Answers a request of the server's.
    ///
    /// # Errors
    /// The server has gone.
    pub fn reply(&mut self, asked: &Value, result: &Value) -> Result<()> {
        self.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string())
    }

    /// Calls a tool; the whole result.
    ///
    /// # Errors
    /// As [`Stdio::ask`].
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool with facts in `_meta`.
    ///
    /// # Errors
    /// As [`Stdio::ask`].
    pub fn call_in(&mut self, tool: &str, arguments: &Value, facts: &Value) -> Result<Value> {
        let meta = json!({ "dev.oncegate/context": facts });
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// The end of what this client says; then what the server left behind.
    ///
    /// # Errors
    /// The server does not end in that time.
    pub fn close(mut self, within: Duration) -> Result<Run> {
        self.running.close_stdin();
        self.running.wait_more(within)
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(self) -> Result<Run> {
        self.running.kill()
    }

    /// What the server has written to standard error until now.
    pub fn errors(&self) -> String {
        self.running.errors()
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits for the end of a server that was told to end.
    ///
    /// # Errors
    /// It does not come in that time.
    pub fn wait(self, within: Duration) -> Result<Run> {
        self.running.wait_more(within)
    }
}

/// Requests of the server's own have ids too.
fn is_answer(message: &Value, id: i64) -> bool {
    message["id"] == id && message.get("method").is_none()
}
