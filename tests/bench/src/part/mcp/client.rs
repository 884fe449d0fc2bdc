//! A client of MCP over a server's standard input and output. It writes and reads lines and no more, so that what is
//! measured is the server.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Where an answer begins behind its id.
const RESULT: &[u8] = b"\"result\":";
/// How what nobody asked for begins.
const NEWS: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":";
/// How long a server may take to end by itself when its input has ended.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A tool and what it must answer.
#[derive(Clone, Debug)]
pub struct Tool {
    /// As it is called.
    pub name: String,
    /// Of each call.
    pub arguments: Value,
    /// Where its result is in the answer.
    pub pointer: &'static str,
    /// What the result must be.
    pub result: Value,
}

/// A server process and the one client that it has.
#[derive(Debug)]
pub struct Client {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
    line: Vec<u8>,
    /// What stands behind the id in a call and in its answer.
    call: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Starts the server and greets it.
    ///
    /// # Errors
    /// It does not start, or not as MCP does.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("the server has no output")?);
        let (line, call, answer) = (Vec::new(), Vec::new(), Vec::new());
        let mut client = Self { process, input, output, last: 0, line, call, answer };
        let info = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        client.ask("initialize", &hello)?;
        client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(client)
    }

    /// The names of its tools.
    ///
    /// # Errors
    /// It does not say.
    pub fn tools(&mut self) -> Result<Vec<String>> {
        let listed = self.ask("tools/list", &json!({}))?;
        let tools = listed["tools"].as_array().context("no list of tools")?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// Asks, and waits for the result.
    ///
    /// # Errors
    /// An error instead, or no answer.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.write(format!("{request}\n").as_bytes())?;
        let mut message: Value = loop {
            self.read()?;
            let message: Value = serde_json::from_slice(&self.line)?;
            // Servers may tell of changes meanwhile.
            if message["id"] == self.last {
                break message;
            }
        };
        ensure!(message.get("result").is_some(), "{method}: {message}");
        Ok(message["result"].take())
    }

    /// Calls from now on are of this tool; its first answer is read whole.
    ///
    /// # Errors
    /// The answer is another one than it must be.
    pub fn use_tool(&mut self, tool: Tool) -> Result<()> {
        let params = json!({ "name": tool.name, "arguments": tool.arguments });
        let result = self.ask("tools/call", &params)?;
        ensure!(result.pointer(tool.pointer) == Some(&tool.result), "{} answers {result}", tool.name);
        ensure!(result["isError"] != true, "{} failed: {result}", tool.name);
        let at = memchr_of(&self.line, RESULT).context("the answer has no result")?;
        self.answer = self.line[at..].to_vec();
        self.call = format!(",\"method\":\"tools/call\",\"params\":{params}}}\n").into_bytes();
        Ok(())
    }

    /// One call, from the first byte written to the last one read.
    ///
    /// # Errors
    /// The answer differs from the first one.
    pub fn call(&mut self) -> Result<Duration> {
        let request = self.request();
        let started = Instant::now();
        self.write(&request)?;
        self.read()?;
        let took = started.elapsed();
        let id = self.answered()?;
        ensure!(id == self.last, "the answer of {id} in place of that of {}", self.last);
        Ok(took)
    }

    /// As many calls, always so many of them in flight.
    ///
    /// # Errors
    /// An answer differs from the first one, or belongs to no call.
    pub fn call_many(&mut self, calls: usize, at_once: usize) -> Result<Duration> {
        let (mut begun, mut flying) = (0, HashSet::new());
        let started = Instant::now();
        while begun < calls || !flying.is_empty() {
            while begun < calls && flying.len() < at_once {
                let request = self.request();
                self.write(&request)?;
                flying.insert(self.last);
                begun += 1;
            }
            self.read()?;
            let id = self.answered()?;
            ensure!(flying.remove(&id), "an answer of {id}, which was not asked for");
        }
        Ok(started.elapsed())
    }

    fn request(&mut self) -> Vec<u8> {
        self.last += 1;
        let mut request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{}", self.last).into_bytes();
        request.extend_from_slice(&self.call);
        request
    }

    /// Which call the line answers; its result is the same, byte by byte, as the first time.
    fn answered(&self) -> Result<u64> {
        let head = self.line.strip_suffix(&self.answer[..]);
        let id = head.and_then(|head| std::str::from_utf8(head).ok()?.split_once("\"id\":")?.1.strip_suffix(','));
        match id.map(str::parse) {
            Some(Ok(id)) => Ok(id),
            _ => bail!("another answer than the first one: {}", String::from_utf8_lossy(&self.line)),
        }
    }

    fn write(&mut self, line: &[u8]) -> Result<()> {
        let input = self.input.as_mut().context("the server's input is closed")?;
        input.write_all(line).context("the server does not read")
    }

    /// The next line that is no news, such as that tools have changed.
    fn read(&mut self) -> Result<()> {
        loop {
            self.line.clear();
            self.output.read_until(b'\n', &mut self.line)?;
            ensure!(self.line.ends_with(b"\n"), "the server ended");
            if !self.line.starts_with(NEWS) {
                return Ok(());
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        let until = Instant::now() + END_WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn memchr_of(line: &[u8], what: &[u8]) -> Option<usize> {
    line.windows(what.len()).position(|window| window == what)
}
