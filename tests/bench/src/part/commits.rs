//! The ledger alone beside bare redb: effects per second at so many callers, two durable commits each.
//!
//! One caller's effect is `Dispatched`, then `Responded`, each awaited; keys are all distinct. Ours goes through
//! the `Ledger` trait with real events, encoded, chained and verified as always; [`bare`] says what the other
//! side is. Both keep one open file for all runs, side by side in one folder, and are measured in turn. Two more
//! rows have no goal: the same with the head marker awaited before the answer, as a real effect does, and a synced
//! log in front of redb ([`logged`]), which is a prototype of this crate only.

pub mod bare;
pub mod load;
pub mod logged;
pub mod ours;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use self::load::{Measured, Store};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::Spread;

const PART: &str = "commits";
const RUNS: usize = 7;
/// Callers, effects of one run, and whether the issue set a goal.
const LOADS: [(usize, usize, bool); 4] = [(1, 250, false), (8, 1_200, false), (64, 4_000, true), (512, 8_000, true)];
const GOAL: f64 = 0.9;

/// Measures the part.
///
/// # Errors
/// A ledger or a file cannot be made or written.
pub fn measure(effort: Effort, _pictures: &Path) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("oncegate-commits-").tempdir()?;
    let ledger = runtime.block_on(ours::Ours::new(&folder.path().join("ours.redb")))?;
    let marked: Arc<dyn Store> = Arc::new(ours::Ours::marked(&ledger));
    let ours: Arc<dyn Store> = Arc::new(ledger);
    let bare: Arc<dyn Store> = Arc::new(bare::Bare::create(&folder.path().join("bare.redb"))?);
    let logged: Arc<dyn Store> = Arc::new(logged::Logged::create(folder.path())?);
    let mut rows = Vec::new();
    for (callers, effects, has_goal) in LOADS {
        let effects = effort.size(effects, callers.max(20));
        let run = |store: &Arc<dyn Store>| runtime.block_on(load::run(store, callers, effects));
        let mut pairs = Vec::new();
        for _ in 0..effort.runs(RUNS) {
            pairs.push([run(&ours)?, run(&bare)?, run(&marked)?, run(&logged)?]);
        }
        let goal = if has_goal { Goal::AtLeast(GOAL) } else { Goal::None };
        let name = format!("effects/s, {callers} caller{}", if callers == 1 { "" } else { "s" });
        rows.push(row(&name, "bare redb doing the same grouped commits", goal, &pairs, 0));
        if has_goal {
            rows.push(row(&format!("{name}, marker awaited"), "bare redb, which has none", Goal::None, &pairs, 2));
            let log = format!("{name}: synced log in front of redb (prototype)");
            rows.push(row(&log, "bare redb", Goal::None, &pairs, 3));
        }
    }
    Ok(rows)
}

fn row(name: &str, against: &str, goal: Goal, runs: &[[Measured; 4]], side: usize) -> Row {
    let pairs: Vec<(f64, f64)> = runs.iter().map(|run| (run[side].per_second, run[1].per_second)).collect();
    let side_of = |side: usize| {
        let all = |figure: fn(&Measured) -> f64| {
            Spread::of(&runs.iter().map(|run| figure(&run[side])).collect::<Vec<f64>>()).median
        };
        format!(
            "{:.0}/s, {:.1} KiB and {:.1} write calls an effect",
            all(|one| one.per_second),
            all(|one| one.kib),
            all(|one| one.writes)
        )
    };
    Row::new(PART, name, against, goal, Spread::of_ratios(&pairs)).with(format!(
        "{} beside {}",
        side_of(side),
        side_of(1)
    ))
}
