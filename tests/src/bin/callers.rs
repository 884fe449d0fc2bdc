//! Many callers in one process, through the library: `callers HOME COMPONENT TOOL` prints `ready`, reads
//! asks as lines of JSON (`{"arguments": …, "context": …}`), starts each as it comes, and prints
//! `{"ask": N, "outcome": …}` for each. It ends at the end of its input, when all are answered.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{CallRequest, Options, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[derive(Deserialize)]
struct Ask {
    arguments: Value,
    context: BTreeMap<String, String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |name: &str| arguments.next().with_context(|| format!("{name} is missing"));
    let (home, component, tool) = (PathBuf::from(next("HOME")?), PathBuf::from(next("COMPONENT")?), next("TOOL")?);
    let sandbox = sandbox(&home).await?;
    let component = sandbox.load(&component)?;
    say("ready")?;
    let mut lines = lines();
    let mut calls = JoinSet::new();
    let mut number = 0;
    while let Some(line) = lines.recv().await {
        let Ask { arguments, context } = serde_json::from_str(&line)?;
        let request = CallRequest { tool: tool.clone(), arguments, context };
        let (sandbox, component, ask) = (sandbox.clone(), Arc::clone(&component), number);
        calls.spawn(async move {
            let outcome = sandbox.call(&component, request).await;
            say(&json!({ "ask": ask, "outcome": outcome }).to_string())
        });
        number += 1;
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    sandbox.drain().await;
    Ok(())
}

async fn sandbox(home: &std::path::Path) -> Result<Sandbox> {
    let file = home.join("policy.toml");
    let policy = Policy::parse(&file.display().to_string(), &std::fs::read_to_string(&file)?)?;
    let ledger = oncegate_ledger::open(&format!("redb:{}", home.join("ledger.redb").display())).await;
    let ledger = ledger.map_err(|error| error.to_string());
    Ok(Sandbox::new(Options { policy, ledger, cache: home.join("cache"), clock: Arc::new(now_ms) })?)
}

/// Standard input, read by a thread of its own.
fn lines() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
