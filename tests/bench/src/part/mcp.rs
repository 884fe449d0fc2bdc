//! The read tool over MCP, beside Wassette: the same component, the same arguments, the same client.
//!
//! Ours is what is shipped: `oncegate serve` with guests in runner processes, a policy and a ledger. Theirs is
//! `wassette run`, which runs guests in its own process, with the component loaded before and no policy beside it: the
//! component reaches nothing. Each answer is held against the first one, and that against what the tool must say.

pub mod client;
mod wassette;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::world::{self, World};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times, per_second};
use client::{Client, Tool};
use wassette::Wassette;

/// Clients at once, and calls in flight.
const CLIENTS: usize = 8;
/// How long a server may take until its tool can be called.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// What the rows stand beside.
const AGAINST: &str = "Wassette 0.8, same component";

/// One of the two programs.
trait Program: Sync {
    /// Starts a server that is spoken to over its standard input and output.
    fn command(&self) -> Command;
    /// The tool as it is called.
    fn tool(&self) -> Tool;
}

/// `oncegate serve`, as it is shipped.
struct Oncegate {
    world: World,
    component: std::path::PathBuf,
}

impl Program for Oncegate {
    fn command(&self) -> Command {
        // The program was looked for before.
        let mut command = Command::new(super::beside("oncegate").unwrap_or_default());
        command.env("ONCEGATE_HOME", self.world.home()).env_remove("ONCEGATE_ISOLATION");
        command.arg("serve").arg(&self.component);
        command
    }

    fn tool(&self) -> Tool {
        Tool { name: "quote".to_owned(), arguments: parcel(), pointer: "/structuredContent/result", result: price() }
    }
}

/// What is asked of the tool.
pub(super) fn parcel() -> Value {
    json!({ "weight": 1200, "zone": "neighbours", "insured": true, "note": "fragile" })
}

/// What it answers.
fn price() -> Value {
    json!({ "cents": 1289, "service": "noted tracked", "days": 4 })
}

/// Measures the rows.
///
/// # Errors
/// A program is not there, or an answer is wrong.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    super::beside("oncegate")?;
    let tokio = tokio::runtime::Builder::new_current_thread().build()?;
    let world = tokio.block_on(World::new(&["tariff"], "http://127.0.0.1:9", ""))?;
    let ours = Oncegate { world, component: world::component("tariff")? };
    let theirs = Wassette::ready(&ours.component)?;
    let mut figures = Figures::default();
    for _ in 0..effort.runs(7) {
        figures.take(&ours, &theirs, effort)?;
    }
    Ok(figures.rows())
}

/// One pair for each run: ours, theirs.
#[derive(Default)]
struct Figures {
    alone: Vec<(f64, f64)>,
    processes: Vec<(f64, f64)>,
    in_flight: Vec<(f64, f64)>,
}

impl Figures {
    fn take(&mut self, ours: &dyn Program, theirs: &dyn Program, effort: Effort) -> Result<()> {
        let calls = effort.size(1_500, 20);
        self.alone.push((alone(ours, calls)?, alone(theirs, calls)?));
        let calls = effort.size(400, 10);
        self.processes.push((processes(ours, calls)?, processes(theirs, calls)?));
        let calls = effort.size(4_000, 40);
        self.in_flight.push((in_flight(ours, calls)?, in_flight(theirs, calls)?));
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let four = Goal::AtLeast(4.0);
        let row = |name, figures, detail| Row::new("mcp", name, AGAINST, four, figures).with(detail);
        let micros = |pairs: &[(f64, f64)]| {
            let (ours, theirs) = medians(pairs);
            format!("{ours:.0} µs beside {theirs:.0} µs a call")
        };
        let rate = |pairs: &[(f64, f64)]| {
            let (ours, theirs) = medians(pairs);
            format!("{ours:.0} beside {theirs:.0} calls/s")
        };
        let turned: Vec<_> = self.alone.iter().map(|(ours, theirs)| (*theirs, *ours)).collect();
        vec![
            row("the read tool over MCP stdio, p50", Spread::of_ratios(&turned), micros(&self.alone)),
            row(
                "calls/s with 8 clients, each with its own server process",
                Spread::of_ratios(&self.processes),
                rate(&self.processes),
            ),
            row(
                "calls/s with 8 calls in flight on one connection",
                Spread::of_ratios(&self.in_flight),
                rate(&self.in_flight),
            ),
        ]
    }
}

fn medians(pairs: &[(f64, f64)]) -> (f64, f64) {
    let side = |side: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(side).collect::<Vec<_>>()).median;
    (side(|pair| pair.0), side(|pair| pair.1))
}

/// A client that has called often enough for everything to be warm.
fn warm(program: &dyn Program) -> Result<Client> {
    let mut client = start(program.command())?;
    let started = Instant::now();
    // Wassette loads what it was given before while it already answers, and until then it knows no such tool.
    while let Err(error) = client.use_tool(program.tool()) {
        ensure!(started.elapsed() < READY_WITHIN, error);
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..100 {
        client.call()?;
    }
    Ok(client)
}

/// Starts a server, and says nothing of what it logs.
pub(super) fn start(mut command: Command) -> Result<Client> {
    command.stderr(Stdio::null());
    Client::start(&mut command).with_context(|| format!("{} over MCP", command.get_program().display()))
}

/// Microseconds of the call in the middle, one after the other.
fn alone(program: &dyn Program, calls: usize) -> Result<f64> {
    let mut client = warm(program)?;
    let mut times = Times::default();
    for _ in 0..calls {
        times.push(client.call()?);
    }
    Ok(times.median())
}

/// Calls a second of as many clients, over standard input and output each with a server of its own.
fn processes(program: &dyn Program, calls: usize) -> Result<f64> {
    let mut clients = (0..CLIENTS).map(|_| warm(program)).collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let work = |client: &'_ mut Client| (0..calls).try_for_each(|_| client.call().map(drop));
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a client failed"))?)
    })?;
    Ok(per_second(CLIENTS * calls, started.elapsed()))
}

/// Calls a second of one client that always waits for as many.
fn in_flight(program: &dyn Program, calls: usize) -> Result<f64> {
    let mut client = warm(program)?;
    let took: Duration = client.call_many(calls, CLIENTS)?;
    Ok(per_second(calls, took))
}
