//! The official MCP client of PyPI, with time-outs that a test chooses.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::ANSWER_WITHIN;
use crate::harness::Running;
use crate::python;

const PACKAGE: &str = "mcp==2.3.0";
const PROGRAM: &str = include_str!("sdk.py");

/// A client that runs. Dropping it kills it.
pub struct Sdk {
    running: Running,
    /// The tools that it was shown.
    pub tools: Vec<String>,
}

impl Sdk {
    /// Over standard input and output; the client starts the command itself. `mode` is `legacy` or a
    /// revision without handshake.
    ///
    /// # Errors
    /// There is no Python, no registry, or the two do not understand each other.
    pub fn stdio(command: &Command, mode: &str) -> Result<Self> {
        Self::start(&Self::over_stdio(command, mode))
    }

    /// The same; what its person answers to every question is `answer`, an action and perhaps a decision.
    ///
    /// # Errors
    /// As [`Sdk::stdio`].
    pub fn stdio_answering(command: &Command, mode: &str, answer: &Value) -> Result<Self> {
        let mut plan = Self::over_stdio(command, mode);
        plan["answer"] = answer.clone();
        Self::start(&plan)
    }

    fn over_stdio(command: &Command, mode: &str) -> Value {
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        let env: BTreeMap<String, String> =
            command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect();
        let args: Vec<String> = command.get_args().map(text).collect();
        json!({ "command": text(command.get_program()), "args": args, "env": env, "mode": mode })
    }

    /// As [`Sdk::stdio_answering`], over HTTP.
    ///
    /// # Errors
    /// As [`Sdk::stdio`].
    pub fn http_answering(address: &str, token: &str, mode: &str, answer: &Value) -> Result<Self> {
        Self::start(&json!({ "url": format!("http://{address}/mcp"), "token": token, "mode": mode, "answer": answer }))
    }

    /// Over HTTP.
    ///
    /// # Errors
    /// As [`Sdk::stdio`].
    pub fn http(address: &str, token: &str, mode: &str) -> Result<Self> {
        Self::start(&json!({ "url": format!("http://{address}/mcp"), "token": token, "mode": mode }))
    }

    fn start(plan: &Value) -> Result<Self> {
        let python = python::install("venv-mcp", PACKAGE).context("the MCP client cannot be installed")?;
        let mut running = Running::start(Command::new(python).args(["-c", PROGRAM]))?;
        running.write_line(&plan.to_string())?;
        match running.read_line(ANSWER_WITHIN) {
            Ok(line) => Ok(Self { running, tools: serde_json::from_str(&line)? }),
            Err(error) => {
                let run = running.kill()?;
                Err(error.context(run.stderr))
            }
        }
    }

    /// Calls a tool and gives up after so many seconds.
    ///
    /// # Errors
    /// The client has ended.
    pub fn call(&mut self, tool: &str, arguments: &Value, timeout: f64) -> Result<Value> {
        let call = json!({ "tool": tool, "arguments": arguments, "timeout": timeout });
        self.running.write_line(&call.to_string())?;
        let line = self.running.read_line(ANSWER_WITHIN)?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }

    /// The client's process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }
}
