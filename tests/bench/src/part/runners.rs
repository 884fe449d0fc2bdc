//! The same call with its guest in a process of its own: what that adds to one call, and what several of them give.
//!
//! Both sides are the library with the same policy, component and arguments; the only difference is where the guest
//! runs. Throughput has as many drivers on both sides: on one runner they share its one core.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use oncegate_sandbox::isolation::Program;
use oncegate_sandbox::{Loaded, Sandbox};

use super::beside;
use super::calls::through_library;
use super::world::{World, component};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times, per_second};

const PART: &str = "runners";
/// Calls of one side before it is the other side's turn.
const TURN: usize = 100;
/// Tasks that call at once, where throughput is measured.
const DRIVERS: usize = 2;

/// Measures.
///
/// # Errors
/// The program is not built, or a call does not come to what it must.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move { tokio::spawn(measured(effort)).await? })
}

async fn measured(effort: Effort) -> Result<Vec<Row>> {
    Ok(vec![added(effort).await?, throughput(effort).await?])
}

/// A sandbox with so many runners, and what keeps its folder.
async fn behind(runners: usize) -> Result<(World, Sandbox, Arc<Loaded>)> {
    let world = World::new(&["tariff"], "http://127.0.0.1:1", "").await?;
    let program = Program {
        path: beside("oncegate")?,
        runner: vec!["runner-process".into()],
        compiler: vec!["compiler-process".into()],
    };
    let count = NonZeroUsize::new(runners).unwrap_or(NonZeroUsize::MIN);
    let sandbox = Sandbox::behind_so_many_runners(world.options().await?, program, count)?;
    let tariff = sandbox.load(&component("tariff")?)?;
    Ok((world, sandbox, tariff))
}

async fn added(effort: Effort) -> Result<Row> {
    let world = World::new(&["tariff"], "http://127.0.0.1:1", "").await?;
    let here = world.sandbox("tariff").await?;
    let (_folder, sandbox, tariff) = behind(1).await?;
    let there = (sandbox, tariff);
    let (mut figures, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs(7) {
        let (mut apart, mut within) = (Times::default(), Times::default());
        for _ in 0..effort.size(20, 1) {
            timed(&mut apart, effort.size(TURN, 20), &there).await?;
            timed(&mut within, effort.size(TURN, 20), &here).await?;
        }
        figures.push(apart.median() - within.median());
        ours.push(apart.median());
        theirs.push(within.median());
    }
    let (ours, theirs) = (Spread::of(&ours).median, Spread::of(&theirs).median);
    let name = "the same in a runner process, per call";
    Ok(Row::new(PART, name, "in process", Goal::AtMost(60.0), Spread::of(&figures))
        .in_unit("µs")
        .with(format!("p50 {ours:.1} µs beside {theirs:.1} µs")))
}

async fn timed(times: &mut Times, calls: usize, (sandbox, tariff): &(Sandbox, Arc<Loaded>)) -> Result<()> {
    for _ in 0..calls {
        let started = Instant::now();
        through_library(sandbox, tariff).await?;
        times.push(started.elapsed());
    }
    Ok(())
}

async fn throughput(effort: Effort) -> Result<Row> {
    let (_one_folder, one, tariff_of_one) = behind(1).await?;
    let (_two_folder, two, tariff_of_two) = behind(2).await?;
    let calls = effort.size(1_000, 20);
    let (mut pairs, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs(7) {
        let (mut took_two, mut took_one) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..effort.size(4, 1) {
            took_two += driven(&two, &tariff_of_two, calls).await?;
            took_one += driven(&one, &tariff_of_one, calls).await?;
        }
        let made = effort.size(4, 1) * DRIVERS * calls;
        let (faster, slower) = (per_second(made, took_two), per_second(made, took_one));
        pairs.push((faster, slower));
        ours.push(faster);
        theirs.push(slower);
    }
    let (ours, theirs) = (Spread::of(&ours).median, Spread::of(&theirs).median);
    Ok(Row::new(PART, "two runners, calls/s", "one runner", Goal::AtLeast(1.8), Spread::of_ratios(&pairs))
        .with(format!("{ours:.0} calls/s beside {theirs:.0} calls/s")))
}

/// How long all drivers take for as many calls each.
async fn driven(sandbox: &Sandbox, tariff: &Arc<Loaded>, calls: usize) -> Result<Duration> {
    let started = Instant::now();
    let drivers: Vec<_> = (0..DRIVERS)
        .map(|_| {
            let (sandbox, tariff) = (sandbox.clone(), Arc::clone(tariff));
            tokio::spawn(async move {
                for _ in 0..calls {
                    through_library(&sandbox, &tariff).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for driver in drivers {
        driver.await??;
    }
    Ok(started.elapsed())
}
