//! The instant provider as a process of its own, and what it counted.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use oncegate_tests::client::Client;
use serde_json::{Value, json};

/// A running provider; it ends with this value.
#[derive(Debug)]
pub struct Instant {
    process: Child,
    /// `http://127.0.0.1:PORT`
    pub url: String,
}

impl Instant {
    /// Starts one.
    ///
    /// # Errors
    /// The program is not built, or it does not say where it listens.
    pub fn start() -> Result<Self> {
        let program = super::beside("instant")?;
        let mut process = Command::new(program).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("the provider has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening ").context("the provider does not say where it listens")?;
        Ok(Self { process, url: url.to_owned() })
    }

    /// How many effects it did, and under how many keys: the oracle.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn effects(&self) -> Result<(u64, u64)> {
        let counts = Client::new(&self.url).json("GET", "/_effects", None)?;
        let count = |name: &str| counts.get(name).and_then(Value::as_u64).context("no count");
        Ok((count("count")?, count("keys")?))
    }

    /// How many requests have come and wait for their answer; there are none while it answers at once.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn waiting(&self) -> Result<u64> {
        let count = Client::new(&self.url).json("GET", "/_waiting", None)?;
        count.get("count").and_then(Value::as_u64).context("no count")
    }

    /// Answers all that wait, and from now on at once.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn release(&self) -> Result<()> {
        Client::new(&self.url).json("POST", "/_release", None).map(drop)
    }

    /// How long each answer takes and how long it is.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn set(&self, delay_ms: u64, answer_bytes: usize) -> Result<()> {
        let settings = json!({ "delay_ms": delay_ms, "answer_bytes": answer_bytes });
        Client::new(&self.url).json("POST", "/_settings", Some(&settings)).map(drop)
    }
}

impl Drop for Instant {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
