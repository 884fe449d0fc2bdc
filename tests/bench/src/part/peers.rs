//! Effects per second beside libraries and engines that promise something like it.
//!
//! Each side makes distinct effects at the same instant provider, in a process of its own, over loopback, from 64
//! callers, and waits for each to be durable (SQLite with `synchronous=FULL`; the others as their packages set it). The
//! peers are driven in their own language, with kept connections and without a sandbox; Oncegate runs a fresh guest
//! for each effect and opens a connection for each. The provider's count says that all of them happened.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use oncegate_tests::harness::root;
use serde::Deserialize;

use super::callers::{keys, post_all};
use super::provider::Instant;
use super::world::World;
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, per_second};

const CALLERS: usize = 64;
const RUNS: usize = 5;
/// Ours in one run: some seconds.
const EFFECTS: usize = 4_000;

struct Peer {
    name: &'static str,
    driver: &'static str,
    /// Effects in one run: some seconds.
    effects: usize,
    goal: Goal,
}

const PEERS: [Peer; 4] = [
    Peer {
        name: "effect-ledger 0.1.2, SQLite",
        driver: "effect_ledger_peer.py",
        effects: 400,
        goal: Goal::AtLeast(10.0),
    },
    Peer {
        name: "exactly-once 0.2.1, SQLite FULL",
        driver: "exactly_once_peer.py",
        effects: 600,
        goal: Goal::AtLeast(10.0),
    },
    Peer { name: "DBOS 3.4.0, SQLite", driver: "dbos_peer.py", effects: 200, goal: Goal::Above(1.0) },
    Peer { name: "Restate 1.7.12", driver: "restate_peer.mjs", effects: 2_000, goal: Goal::Above(1.0) },
];

#[derive(Deserialize)]
struct Driven {
    seconds: f64,
    done: usize,
}

/// A row for each peer.
///
/// # Errors
/// A peer is not installed, or an effect is missing at the provider.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut rates: Vec<Vec<(f64, f64)>> = vec![Vec::new(); PEERS.len()];
    for run in 0..effort.runs(RUNS) {
        for (peer, rates) in PEERS.iter().zip(&mut rates) {
            let ours = runtime.block_on(ours(effort.size(EFFECTS, 64), run))?;
            rates.push((ours, theirs(peer, effort.size(peer.effects, 64))?));
        }
    }
    Ok(PEERS.iter().zip(&rates).map(|(peer, rates)| row(peer, rates)).collect())
}

fn row(peer: &Peer, rates: &[(f64, f64)]) -> Row {
    let median = |side: fn(&(f64, f64)) -> f64| Spread::of(&rates.iter().map(side).collect::<Vec<_>>()).median;
    let detail = format!("{:.0}/s beside {:.0}/s", median(|rate| rate.0), median(|rate| rate.1));
    let name = format!("effects/s at equal durability, {CALLERS} callers");
    Row::new("peers", &name, peer.name, peer.goal, Spread::of_ratios(rates)).with(detail)
}

async fn ours(effects: usize, run: usize) -> Result<f64> {
    let provider = Instant::start()?;
    let world = World::new(&["posting"], &provider.url, "effects = 10").await?;
    let (sandbox, component) = world.sandbox("posting").await?;
    post_all(&sandbox, &component, 1, keys("warm", 1)).await?;
    let took = post_all(&sandbox, &component, CALLERS, keys(&format!("run-{run}"), effects)).await?;
    sandbox.drain().await;
    counted(&provider, effects + 1)?;
    Ok(per_second(effects, took))
}

fn theirs(peer: &Peer, effects: usize) -> Result<f64> {
    let provider = Instant::start()?;
    let folder = tempfile::Builder::new().prefix("oncegate-peer-").tempdir()?;
    let drivers = root().join("tests/bench/peers");
    let installed = root().join("target/baselines");
    let program = if peer.driver.ends_with(".py") { "venv/bin/python" } else { "node_modules/.bin/node" };
    let mut command = Command::new(installed.join(program));
    command.arg(drivers.join(peer.driver)).arg(folder.path()).arg(&provider.url);
    command.args([CALLERS.to_string(), effects.to_string()]);
    command.env("BASELINES", &installed).env("RESTATE_LOGGING", "ERROR").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().with_context(|| format!("{}; install it with --peers", peer.name))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().last().unwrap_or_default();
    let driven: Driven = serde_json::from_str(said)
        .with_context(|| format!("{} said {said:?}, {}", peer.name, String::from_utf8_lossy(&output.stderr)))?;
    ensure!(driven.done == effects, "{} made {} effects of {effects}", peer.name, driven.done);
    counted(&provider, effects + 1)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of effects")]
    Ok(driven.done as f64 / driven.seconds)
}

fn counted(provider: &Instant, effects: usize) -> Result<()> {
    let (count, keys) = provider.effects()?;
    let made = u64::try_from(effects)?;
    ensure!((count, keys) == (made, made), "the provider made {count} effects under {keys} keys, not {made}");
    Ok(())
}
