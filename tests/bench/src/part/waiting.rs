//! Memory of calls that wait for a provider: a thousand of them at once, each a guest in the middle of a lookup.
//!
//! The provider holds its answers back and says how many requests it has: all of them wait there when memory is read.
//! Memory is what the kernel gave to no other process too (`RssAnon`: pages that were written), of the program and, where
//! guests are in runner processes, of those too. Every call is answered in the end, and each by the provider's own answer.
//! Each run is a process of its own: what an earlier one left behind would make the next look cheap.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use oncegate_sandbox::isolation::Program;
use oncegate_sandbox::outcome::Status;
use oncegate_sandbox::{CallRequest, Loaded, Sandbox};
use serde_json::json;

use super::beside;
use super::provider::Instant as Provider;
use super::world::{World, component};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::Spread;

const PART: &str = "waiting";
/// A policy under which nobody is told `pending` meanwhile.
const LIMITS: &str = "answer-within = \"60s\"\nrequest-deadline = \"60s\"\nidle = \"60s\"";
/// How long all may take to come to the provider, and to be answered.
const WITHIN: Duration = Duration::from_secs(60);

/// In the environment of a process that measures once: where its guests run.
const ONCE: &str = "ONCEGATE_BENCH_WAITING";
const HERE: &str = "here";
const APART: &str = "apart";

/// Measures.
///
/// # Errors
/// Not all calls wait at once, or one is not answered.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    if let Ok(place) = std::env::var(ONCE) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        return runtime.block_on(async move { tokio::spawn(once(effort, place == APART)).await? }).map(|row| vec![row]);
    }
    [("idle, guests in process", HERE), ("idle, guests in a runner process", APART)]
        .into_iter()
        .map(|(against, place)| row(effort, against, place))
        .collect()
}

/// Several runs, each in a process of its own.
fn row(effort: Effort, against: &str, place: &str) -> Result<Row> {
    let (mut figures, mut detail) = (Vec::new(), String::new());
    for _ in 0..effort.runs(5) {
        let folder = tempfile::tempdir()?;
        let mut program = Command::new(std::env::current_exe()?);
        program.env(ONCE, place).args(["--only", PART, "--json", "--out"]).arg(folder.path());
        if effort.smoke {
            program.arg("--smoke");
        }
        let output = program.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "a run of its own failed");
        let rows: Vec<Row> = serde_json::from_slice(&output.stdout).context("a run of its own")?;
        let one = rows.into_iter().next().context("a run of its own told nothing")?;
        figures.push(one.ratio);
        detail = one.detail;
    }
    let name = "1,000 calls waiting on a provider, memory each";
    Ok(Row::new(PART, name, against, Goal::AtMost(64.0), Spread::of(&figures)).in_unit("KiB").with(detail))
}

async fn sandbox(world: &World, apart: bool) -> Result<(Sandbox, Arc<Loaded>)> {
    if !apart {
        return world.sandbox("posting").await;
    }
    let program = Program {
        path: beside("oncegate")?,
        runner: vec!["runner-process".into()],
        compiler: vec!["compiler-process".into()],
    };
    let sandbox = Sandbox::behind_so_many_runners(world.options().await?, program, NonZeroUsize::MIN)?;
    let posting = sandbox.load(&component("posting")?)?;
    Ok((sandbox, posting))
}

/// One run in this process.
async fn once(effort: Effort, apart: bool) -> Result<Row> {
    let provider = Provider::start()?;
    let world = World::new(&["posting"], &provider.url, LIMITS).await?;
    let (sandbox, posting) = sandbox(&world, apart).await?;
    let calls = effort.size(1_000, 50);
    // What one call leaves behind once and for all is no call's own.
    answered(look(&sandbox, &posting, "first").await)?;
    let before = private_kib()?;
    // Nobody is answered before all have come: how long that takes depends on the machine.
    provider.set(600_000, 0)?;
    let started = Instant::now();
    let look_up = |call: usize| {
        let (sandbox, posting) = (sandbox.clone(), Arc::clone(&posting));
        tokio::spawn(async move { look(&sandbox, &posting, &call.to_string()).await })
    };
    let waiting: Vec<_> = (0..calls).map(look_up).collect();
    all_there(&provider, calls).await?;
    let came = started.elapsed();
    let during = private_kib()?;
    ensure!(provider.waiting()? == calls as u64, "some have gone meanwhile");
    provider.release()?;
    for call in waiting {
        answered(tokio::time::timeout(WITHIN, call).await.context("a call is not answered")??)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "kibibytes of a process")]
    let each = during.saturating_sub(before) as f64 / calls as f64;
    let (during, before, came) = (during >> 10, before >> 10, came.as_millis());
    let detail = format!("{during} MiB with {calls}, {before} MiB without; all there after {came} ms");
    Ok(Row::new(PART, "one run", "idle", Goal::None, Spread::of(&[each])).with(detail))
}

async fn look(sandbox: &Sandbox, posting: &Arc<Loaded>, id: &str) -> oncegate_sandbox::outcome::Outcome {
    let context = BTreeMap::new();
    let request = CallRequest { tool: "look".to_owned(), arguments: json!({ "id": id }), context };
    sandbox.call(posting, request).await
}

fn answered(outcome: oncegate_sandbox::outcome::Outcome) -> Result<()> {
    ensure!(outcome.status == Status::Done, "it came to {outcome:?}");
    Ok(())
}

async fn all_there(provider: &Provider, calls: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let there = provider.waiting()?;
        if there == calls as u64 {
            return Ok(());
        }
        ensure!(started.elapsed() < WITHIN, "{there} of {calls} calls came to the provider");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Memory of this process and of the runners it has started, that no other process shares.
fn private_kib() -> Result<u64> {
    let own = std::process::id();
    let mut kib = private_kib_of(own)?;
    for child in children(own)? {
        if std::fs::read_to_string(format!("/proc/{child}/cmdline"))?.starts_with("oncegate-runner") {
            kib += private_kib_of(child)?;
        }
    }
    Ok(kib)
}

fn private_kib_of(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("the kernel does not tell")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn children(of: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{of}/task"))? {
        let children = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(found)
}
