//! A repeat beside the first time: calls per second of one caller.
//!
//! The short path answers a call that is the same in every word from what the ledger's heads say. A call that is
//! worded anew runs the guest, and is answered from the effect's row; it is shown beside the first one.

use std::path::Path;
use std::time::Instant as Clock;

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;

use super::effect::posting::{Posting, runtime};
use super::provider::Instant;
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, per_second};

/// Effects of one run, repeats of all of them that are the same in every word, and those that are not; runs.
const EFFECTS: usize = 200;
const ROUNDS: usize = 50;
const WORDED_ROUNDS: usize = 2;
const RUNS: usize = 7;

/// Measures both rows.
///
/// # Errors
/// Something is not built, or a repeat sent something.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let provider = Instant::start()?;
    provider.set(0, 300)?;
    let runtime = runtime()?;
    let posting = runtime.block_on(Posting::new(&provider.url))?;
    let size = effort.size(EFFECTS, 3);
    posting.warm_up(&runtime, effort.size(30, 2))?;
    let (mut same, mut worded, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs(RUNS) {
        let from = posting.made();
        let first = rate(size, || (0..size).try_for_each(|_| runtime.block_on(posting.new_effect())))?;
        posting.settle();
        // The first repeat runs the guest, and what it was told is what the next ones are told.
        repeat(&posting, &runtime, from, size, None)?;
        let rounds = effort.size(ROUNDS, 2);
        let again = rate(size * rounds, || (0..rounds).try_for_each(|_| repeat(&posting, &runtime, from, size, None)))?;
        let rounds = effort.size(WORDED_ROUNDS, 1);
        let anew = |round: usize| repeat(&posting, &runtime, from, size, Some(&format!("In other words, {round}.")));
        let anew = rate(size * rounds, || (0..rounds).try_for_each(anew))?;
        same.push((again, first));
        worded.push((anew, first));
        rates.push([first, again, anew]);
    }
    let (count, keys) = provider.effects()?;
    ensure!(
        count == posting.made() && keys == count,
        "{count} effects under {keys} keys, {} asked for",
        posting.made()
    );
    let [first, again, anew] =
        [0, 1, 2].map(|at| Spread::of(&rates.iter().map(|rate| rate[at]).collect::<Vec<_>>()).median);
    let detail =
        format!("{again:.0}/s the same in every word, {anew:.0}/s worded anew (the guest runs), {first:.0}/s first");
    let row = |name: &str, goal, pairs: &[(f64, f64)]| {
        Row::new("already-done", name, "first execution", goal, Spread::of_ratios(pairs)).with(detail.clone())
    };
    Ok(vec![
        row("already_done, calls per second", Goal::AtLeast(100.0), &same),
        row("already_done, worded anew, calls per second", Goal::None, &worded),
    ])
}

fn repeat(posting: &Posting, runtime: &Runtime, from: u64, size: usize, memo: Option<&str>) -> Result<()> {
    // One task for all, as a server has: a block_on for each call is not what is measured.
    let all = async {
        for number in from..from + size as u64 {
            posting.repeat(number, memo).await?;
        }
        anyhow::Ok(())
    };
    runtime.block_on(Box::pin(all))
}

fn rate(calls: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Clock::now();
    work()?;
    Ok(per_second(calls, started.elapsed()))
}
