//! What the story needs: the built programs, a provider, a data directory with ledger and policy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guests::{printed, root, run};

/// The credential; the fake provider takes any.
const SECRET: &str = "sk_test_demo";

pub(super) struct Stage {
    folder: TempDir,
    provider: Child,
    address: String,
    oncegate: PathBuf,
    component: PathBuf,
}

impl Stage {
    /// Builds what is missing and sets everything up in a temporary folder.
    pub(super) fn set() -> Result<Self> {
        let root = root()?;
        run(Command::new("cargo").current_dir(&root).args(["build", "--quiet", "--workspace", "--bins"]))?;
        let programs = target_dir()?.join("debug");
        let mut provider = Command::new(programs.join("provider"))
            .stdout(Stdio::piped())
            .spawn()
            .context("the provider does not start")?;
        let mut line = String::new();
        let output = provider.stdout.take().context("the provider has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening http://").context("the provider says no address")?.to_owned();
        let folder = tempfile::Builder::new().prefix("oncegate-demo-").tempdir()?;
        let stage = Self {
            folder,
            provider,
            address,
            oncegate: programs.join("oncegate"),
            component: root.join("target/guests/refunds.wasm"),
        };
        stage.furnish()?;
        Ok(stage)
    }

    fn furnish(&self) -> Result<()> {
        fs::write(self.folder.path().join("policy.toml"), self.policy()?)?;
        run(self.command().args(["ledger", "init"]).stdout(Stdio::null()))?;
        let returned = json!({ "id": "R-1001", "charge": "ch_1001", "amount": 5_000, "status": "received" });
        self.post("/_seed", &json!({ "returns": [returned] }))
    }

    fn policy(&self) -> Result<String> {
        let digest = printed(Command::new("sha256sum").arg(&self.component))?;
        let digest = digest.split_whitespace().next().context("no digest")?;
        let address = &self.address;
        Ok(format!(
            r#"[[component]]
digest = "sha256:{digest}"
tenants = ["acme"]
grant = ["get-return", "create-refund", "find-refund"]

[endpoint.shop]
url = "http://{address}"
account = "shop"
allow-private = true

[endpoint.pay]
url = "http://{address}"
account = "acme-eu"
egress = "direct"
allow-private = true

[credential.pay]
from = "env:PAY_KEY"
attach = "header:Authorization"
format = "Bearer {{secret}}"

[limits]
answer-within = "1s"
attach = "500ms"
"#
        ))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.oncegate);
        command.env("ONCEGATE_HOME", self.folder.path()).env("PAY_KEY", SECRET);
        command
    }

    /// Starts one call of the tool in a process of its own.
    pub(super) fn call(&self, amount: u32, reason: &str, run: &str) -> Result<Call> {
        let arguments = json!({ "return_id": "R-1001", "amount": amount, "reason": reason });
        let mut child = self
            .command()
            .args(["call", "--json", "--context", "tenant=acme", "--context", &format!("run={run}")])
            .arg(&self.component)
            .args(["issue-refund", "--args", &arguments.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("oncegate does not start")?;
        let output = BufReader::new(child.stdout.take().context("oncegate has no output")?);
        Ok(Call { child, output })
    }

    /// How many refunds the provider has made.
    pub(super) fn effects(&self) -> Result<u64> {
        let counts = self.ask("GET", "/_effects", "")?;
        counts["counts"]["refund"].as_u64().context("the provider counts nothing")
    }

    /// Tells the provider how to go wrong.
    pub(super) fn control(&self, rule: &Value) -> Result<()> {
        self.post("/_control", rule)
    }

    fn post(&self, path: &str, body: &Value) -> Result<()> {
        self.ask("POST", path, &body.to_string()).map(drop)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(&self.address).context("the provider is gone")?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the provider gave no answer")?;
        if !head.starts_with("HTTP/1.1 200") {
            bail!("the provider answered {method} {path} with {head}");
        }
        serde_json::from_str(body).context("the provider gave no JSON")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.provider.kill();
        let _ = self.provider.wait();
    }
}

/// A call under way.
pub(super) struct Call {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Call {
    /// What the agent hears; the process may go on.
    pub(super) fn outcome(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).context("oncegate printed no outcome")
    }

    /// What the agent hears, and the end of the process.
    pub(super) fn finish(mut self) -> Result<Value> {
        let outcome = self.outcome()?;
        self.child.wait()?;
        Ok(outcome)
    }

    /// SIGKILL: no handler runs, nothing is flushed.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

fn target_dir() -> Result<PathBuf> {
    let metadata =
        printed(Command::new("cargo").current_dir(root()?).args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().context("cargo names no target directory")?))
}
