//! One effect alone, end to end, beside two durable commits of bare redb.
//!
//! Ours: `Sandbox::call` of `post` of the component `posting`, from JSON to JSON, against the instant provider in a
//! process of its own; less the bare exchange, which is the same request made by a minimal blocking client over a
//! new connection to the same provider. Theirs: [`lean`], two two-phase commits with the same bytes and nothing else.
//! Calls of one side follow each other at once, so what a call leaves to be stored behind it is paid by the next.

pub mod exchange;
pub mod lean;
pub mod posting;
mod syncs;

use std::path::Path;

use anyhow::{Result, ensure};

use super::provider::Instant;
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};
use lean::Lean;
use posting::{Posting, runtime};

/// Effects of one side of one run, and runs.
const EFFECTS: usize = 150;
const RUNS: usize = 9;
/// Effects whose syncs are counted.
const COUNTED: usize = 25;

/// Measures the row.
///
/// # Errors
/// Something is not built, or an effect did not happen once.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let provider = Instant::start()?;
    provider.set(0, 300)?;
    let runtime = runtime()?;
    let posting = runtime.block_on(Posting::new(&provider.url))?;
    let size = effort.size(EFFECTS, 3);
    let sizes = posting.warm_up(&runtime, effort.size(30, 2))?;
    let mut lean = Lean::create(&posting.folder().join("bare.redb"), sizes)?;
    let (mut pairs, mut all) = (Vec::new(), [Times::default(), Times::default(), Times::default()]);
    for _ in 0..effort.runs(RUNS) {
        let ours = Times::of(size, || posting.effect(&runtime));
        posting.settle();
        let exchanges = exchange::times(&provider.url, size, sizes.request)?;
        let theirs = lean.times(size)?;
        pairs.push((ours.median() - exchanges.median(), theirs.median()));
        [ours, exchanges, theirs].iter().zip(&mut all).for_each(|(times, all)| all.extend(times));
    }
    let syncs = if effort.smoke { String::new() } else { counted(&posting, &runtime, &mut lean) };
    let (count, keys) = provider.effects()?;
    let made = posting.made() + all[1].len() as u64;
    ensure!(count == made && keys == made, "{count} effects under {keys} keys, {made} asked for");
    let [ours, exchanges, theirs] = all.map(|times| times.median());
    let detail = format!(
        "{:.0} µs a call, less {exchanges:.0} µs for the bare exchange, beside {theirs:.0} µs; records of {} and {} B{syncs}",
        ours, sizes.dispatch, sizes.answer
    );
    let name = "one effect alone, provider instant, host-added time";
    let row =
        Row::new("effect", name, "two durable commits of bare redb", Goal::AtMost(1.15), Spread::of_ratios(&pairs));
    Ok(vec![row.with(detail)])
}

/// Syncs of one effect of each side, where the system lets them be counted.
fn counted(posting: &Posting, runtime: &tokio::runtime::Runtime, lean: &mut Lean) -> String {
    let ours = syncs::of(|| (0..COUNTED).for_each(|_| posting.effect(runtime)));
    posting.settle();
    let theirs = syncs::of(|| drop(lean.times(COUNTED)));
    let each = |all: u64| all as f64 / COUNTED as f64;
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => format!("; syncs an effect: {:.2} beside {:.2}", each(ours), each(theirs)),
        _ => "; syncs not counted (no strace)".to_owned(),
    }
}
