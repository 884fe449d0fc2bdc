//! Agent frameworks of others, driven by the programs in `tests/clients`: each line in is a run, each line out
//! what came of it. The model is scripted: it says everything in other words and under another id each time.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::npm;
use crate::harness::{Harness, Run, Running, root};
use crate::python;

/// A run takes several calls and time-outs, on a busy machine.
pub const RUN_WITHIN: Duration = Duration::from_secs(300);
/// The official client; what it needs is npm's to choose.
const TYPESCRIPT: &str = "@modelcontextprotocol/sdk@1.32.2";

/// A framework that runs. Dropping it kills it.
pub struct Driver(Running);

impl Driver {
    /// LangGraph. It starts `oncegate serve` itself, in a folder that holds `refunds.wasm`.
    ///
    /// # Errors
    /// There is no Python or no registry.
    pub fn langgraph(harness: &Harness) -> Result<Self> {
        Self::python(harness, "langgraph")
    }

    /// The OpenAI Agents SDK, in the same way.
    ///
    /// # Errors
    /// As [`Driver::langgraph`].
    pub fn openai_agents(harness: &Harness) -> Result<Self> {
        Self::python(harness, "openai-agents")
    }

    fn python(harness: &Harness, framework: &str) -> Result<Self> {
        let python = installed(framework)?;
        let folder = workplace(harness)?;
        let path = env::var("PATH").unwrap_or_default();
        let mut command = Command::new(python);
        command.arg(clients().join(framework).join("drive.py")).current_dir(&folder);
        command.envs(harness.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", format!("{}:{path}", folder.display()));
        Ok(Self(Running::start(cached(&mut command))?))
    }

    /// The official TypeScript client, over HTTP to that address.
    ///
    /// # Errors
    /// There is no npm or no registry.
    pub fn typescript(address: &str, token: &str) -> Result<Self> {
        let packages = npm::install("npm-typescript", &[TYPESCRIPT]).context("the client cannot be installed")?;
        let program = fs::read_to_string(clients().join("typescript/drive.mjs"))?;
        let mut node = Command::new("node");
        node.args(["--input-type=module", "--eval", &program, &format!("http://{address}/mcp"), token]);
        Ok(Self(Running::start(node.current_dir(packages))?))
    }

    /// Says what to do.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, run: &Value) -> Result<()> {
        self.0.write_line(&run.to_string())
    }

    /// Waits for what came of a run.
    ///
    /// # Errors
    /// It has ended, or it takes too long.
    pub fn heard(&self) -> Result<Value> {
        let line = self.0.read_line(RUN_WITHIN)?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }

    /// One run from its start to its end.
    ///
    /// # Errors
    /// As [`Driver::heard`].
    pub fn run(&mut self, run: &Value) -> Result<Value> {
        self.tell(run)?;
        self.heard()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(self) -> Result<Run> {
        self.0.kill()
    }
}

/// The control: the refund tool without a host, over HTTP. Dropping it ends it.
pub struct Plain {
    _running: Running,
    /// Where it is.
    pub url: String,
}

impl Plain {
    /// Starts one in front of that provider.
    ///
    /// # Errors
    /// There is no Python or no registry.
    pub fn start(provider_url: &str) -> Result<Self> {
        let mut command = Command::new(installed("langgraph")?);
        command.arg(clients().join("plain_server.py")).arg(provider_url);
        let running = Running::start(cached(&mut command))?;
        let url = running.read_line(RUN_WITHIN).context("the plain server did not start")?;
        Ok(Self { _running: running, url })
    }
}

/// The receipts of the refunds that the provider made for a return: the oracle.
///
/// # Errors
/// The provider does not answer.
pub fn made(harness: &Harness, return_id: &str) -> Result<Vec<String>> {
    let effects = harness.provider().effects()?.into_iter();
    Ok(effects.filter(|effect| effect.object["metadata"]["return"] == return_id).map(|effect| effect.id).collect())
}

fn clients() -> PathBuf {
    root().join("tests/clients")
}

fn installed(framework: &str) -> Result<PathBuf> {
    let requirements = clients().join(framework).join("requirements.txt");
    let python = python::install_all(&format!("venv-{framework}"), &requirements);
    python.with_context(|| format!("{framework} cannot be installed"))
}

/// Python compiles what is imported, once and not among the sources.
fn cached(command: &mut Command) -> &mut Command {
    command.env("PYTHONPYCACHEPREFIX", root().join("target/pycache"))
}

/// A folder as the README's reader has one: the program by its name, and the component.
///
/// # Errors
/// The disk refuses.
pub fn workplace(harness: &Harness) -> Result<PathBuf> {
    let folder = harness.folder().join("workplace");
    if !folder.exists() {
        fs::create_dir(&folder)?;
        symlink(Path::new(harness.command().get_program()), folder.join("oncegate"))?;
        fs::copy(harness.component(), folder.join("refunds.wasm"))?;
    }
    Ok(folder)
}
