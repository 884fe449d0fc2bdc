//! Wassette, from where `cargo xtask bench --peers` installed it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use super::client::{Client, Tool};
use super::{Program, parcel, price};

/// It with one component in a folder of its own.
pub(super) struct Wassette {
    program: PathBuf,
    components: TempDir,
    tool: String,
}

impl Wassette {
    /// Loads the component, which compiles it and keeps the code.
    pub(super) fn ready(component: &Path) -> Result<Self> {
        let program = oncegate_tests::harness::root().join("target/peers/wassette");
        let built = program.exists().then_some(program);
        let program = built.context("Wassette is not installed; run `cargo xtask bench --peers --only mcp`")?;
        let components = tempfile::Builder::new().prefix("oncegate-wassette-").tempdir()?;
        let mut ready = Self { program, components, tool: String::new() };
        let mut client: Client = super::start(ready.command())?;
        let path = format!("file://{}", component.canonicalize()?.display());
        client.ask("tools/call", &json!({ "name": "load-component", "arguments": { "path": path } }))?;
        let tools = client.tools()?;
        let tool = tools.into_iter().find(|tool| tool.ends_with("quote"));
        ready.tool = tool.context("Wassette shows no such tool")?;
        Ok(ready)
    }
}

impl Program for Wassette {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("run").arg("--component-dir").arg(self.components.path());
        command
    }

    fn tool(&self) -> Tool {
        let arguments = json!({ "parcel": parcel() });
        Tool { name: self.tool.clone(), arguments, pointer: "/structuredContent/result/ok", result: price() }
    }
}
