//! The protocol's own judge, from npm: what it finds wrong with a server.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::npm;

const PACKAGES: [&str; 2] = ["node@22.23.3", "@modelcontextprotocol/conformance@0.2.0-alpha.12"];

/// What stands behind a scenario's name; names have hyphens and years too.
const TIME: &str = "-2026-07-28T12-00-00-000Z";

/// One thing that was looked at.
#[derive(Debug)]
pub struct Check {
    /// The scenario that it belongs to.
    pub scenario: String,
    /// Its name.
    pub id: String,
    /// `SUCCESS`, `FAILURE`, `WARNING`, `INFO` or `SKIPPED`.
    pub status: String,
    /// What is wrong.
    pub message: String,
}

/// Runs the requirements of a revision against a server, with this token and these facts in each request.
///
/// # Errors
/// There is no npm or no registry, or the judge does not run.
pub fn judge(address: &str, token: &str, facts: &str, revision: &str, folder: &Path) -> Result<Vec<Check>> {
    let root = npm::install("npm-conformance", &PACKAGES).context("the conformance suite cannot be installed")?;
    let url = format!("http://{}/mcp", behind(address, token, facts)?);
    let results = folder.join(facts);
    let judge = root.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let run = Command::new(root.join("node_modules/.bin/node"))
        .arg(judge)
        .args(["server", "--url", &url, "--requirements", revision, "-o"])
        .arg(&results)
        .stdin(Stdio::null())
        .output()?;
    let mut checks = Vec::new();
    for entry in fs::read_dir(&results).with_context(|| String::from_utf8_lossy(&run.stderr).into_owned())? {
        checks.extend(read(&entry?.path())?);
    }
    if checks.is_empty() {
        bail!("nothing was looked at: {}", String::from_utf8_lossy(&run.stdout));
    }
    Ok(checks)
}

/// The checks of one scenario; its folder is `server-NAME-TIME`.
fn read(folder: &Path) -> Result<Vec<Check>> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.strip_prefix("server-").unwrap_or(&name);
    let scenario = name.get(..name.len().saturating_sub(TIME.len())).unwrap_or_default().to_owned();
    let text = fs::read_to_string(folder.join("checks.json")).with_context(|| format!("{}", folder.display()))?;
    let found: Vec<Value> = serde_json::from_str(&text)?;
    let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let check = |check: &Value| Check {
        scenario: scenario.clone(),
        id: text(check, "id"),
        status: text(check, "status"),
        message: text(check, "errorMessage"),
    };
    Ok(found.iter().map(check).collect())
}

/// The judge cannot be given a token, so an orchestrator stands in between that adds it and its facts.
/// Serves for as long as the test runs; returns where it is.
fn behind(address: &str, token: &str, facts: &str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let own = listener.local_addr()?.to_string();
    let added = format!("Connection: close\r\nAuthorization: Bearer {token}\r\nOncegate-Context: {facts}");
    let (address, host) = (address.to_owned(), own.clone());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (address, added, host) = (address.clone(), added.clone(), host.clone());
            // A connection that breaks is the judge's to notice.
            thread::spawn(move || pass(client, &address, &added, &host).ok());
        }
    });
    Ok(own)
}

/// One request of one connection, and all that comes back.
fn pass(mut client: TcpStream, address: &str, added: &str, host: &str) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?;
    let mut lines = vec![added.to_owned()];
    let own = |line: &str| !line.to_ascii_lowercase().starts_with("connection:");
    // To the server its own name, and other names as they are.
    lines.splice(0..0, head.trim_end().lines().filter(|line| own(line)).map(|line| line.replace(host, address)));
    let mut server = TcpStream::connect(address)?;
    server.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes())?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(std::net::Shutdown::Both)?;
    server.shutdown(std::net::Shutdown::Both)?;
    Ok(())
}
