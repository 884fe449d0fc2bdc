//! The MCP inspector of npm, which people look at servers with, without its pages.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::npm;
use crate::harness::Run;

const PACKAGES: [&str; 2] = ["node@22.23.3", "@modelcontextprotocol/inspector@2.12.0"];
/// What it looks at.
pub enum Target<'a> {
    /// A command that it starts.
    Stdio(&'a Command),
    /// An address of a server, and a token for it.
    Http(&'a str, &'a str),
}

/// Runs it once, with a home of its own.
///
/// # Errors
/// There is no npm or no registry, or it does not end.
pub fn inspect(target: &Target<'_>, arguments: &[&str], home: &Path) -> Result<Run> {
    let root = npm::install("npm-inspector", &PACKAGES).context("the inspector cannot be installed")?;
    let mut command = Command::new(root.join("node_modules/.bin/node"));
    command
        .arg(root.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
        .args(["--cli", "--format", "json"])
        .args(arguments)
        .env("HOME", home);
    match target {
        Target::Stdio(server) => {
            for (name, value) in server.get_envs() {
                let pair = format!("{}={}", name.to_string_lossy(), value.unwrap_or_default().to_string_lossy());
                command.args(["-e", &pair]);
            }
            // What is behind these is the server's.
            command.arg("--").arg(server.get_program()).args(server.get_args());
        }
        Target::Http(address, token) => {
            command.args(["--server-url", &format!("http://{address}/mcp")]);
            command.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
    }
    Run::of(&mut command)
}
