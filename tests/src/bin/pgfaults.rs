//! The fault campaign on PostgreSQL as a program; `cargo xtask faults --postgres` builds what it needs and runs it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use oncegate_tests::faults::postgres::cell::Trial;
use oncegate_tests::faults::postgres::fault::Fault;
use oncegate_tests::faults::postgres::{Profile, net, table};
use oncegate_tests::faults::row::Row;

/// Hosts that share a ledger on PostgreSQL, killed, stopped, cut off and failed over, judged by the provider's count
#[derive(Parser)]
struct Args {
    /// How much is tried
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    /// Decides all chances, as far as real processes leave any
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only faults whose name has this in it; may be given more than once
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Only with so many hosts
    #[arg(long)]
    hosts: Option<usize>,
    /// How many things two hosts race for
    #[arg(long)]
    races: Option<u64>,
    /// Cells that run beside each other
    #[arg(long, default_value_t = 3)]
    lanes: usize,
    /// Where `table.md` and `rows.json` go
    #[arg(long)]
    out: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let (trials, left_out) = trials(&args)?;
    let rows = run(&args, trials)?;
    let only: String = args.only.iter().map(|words| format!(" --only \"{words}\"")).collect();
    let races = args.races.map(|races| format!(" --races {races}")).unwrap_or_default();
    let command = format!("cargo xtask faults --postgres --profile {}{only}{races}", args.profile.name());
    table::write(&args.out, &command, args.seed, &rows)?;
    println!("{} rows in {}", rows.len(), args.out.join("table.md").display());
    if left_out {
        eprintln!("LEFT OUT: partitions; nothing is shown about them");
    }
    Ok(verdict(&rows))
}

/// The cells, and whether some are left out that this process may not run.
fn trials(args: &Args) -> Result<(Vec<Trial>, bool)> {
    let mut trials = args.profile.trials(args.races);
    trials.retain(|trial| args.hosts.is_none_or(|hosts| hosts == trial.hosts));
    let wanted = |trial: &Trial| args.only.iter().any(|words| trial.fault.name().contains(words.as_str()));
    trials.retain(|trial| args.only.is_empty() || wanted(trial));
    if trials.is_empty() {
        let names = Fault::ALL.map(Fault::name);
        bail!("--only {:?}: no fault has this in its name; they are {names:?}", args.only);
    }
    let mut left_out = false;
    if let Err(why) = net::permitted() {
        let before = trials.len();
        trials.retain(|trial| trial.fault != Fault::Partitioned);
        left_out = trials.len() < before;
        if left_out {
            eprintln!("LEFT OUT: partitions need network namespaces, which this process may not make: {why:#}");
        }
    }
    // The long ones first, so that no lane is alone at the end.
    trials.sort_by_key(|trial| std::cmp::Reverse((trial.races, trial.hosts, trial.fault.lasts())));
    Ok((trials, left_out))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(args: &Args, trials: Vec<Trial>) -> Result<Vec<Row>> {
    let queue = Mutex::new(VecDeque::from(trials));
    let rows = Mutex::new(Vec::new());
    let lane = || -> Result<()> {
        loop {
            let Some(trial) = lock(&queue).pop_front() else { return Ok(()) };
            let cell = trial.cell(args.seed);
            let started = Instant::now();
            let run = trial.run(args.seed).with_context(|| format!("{} hosts, {}", cell.callers, cell.mode));
            let tally = run.inspect_err(|_| lock(&queue).clear())?;
            eprintln!("{} hosts, {}: {} s, {tally:?}", cell.callers, cell.mode, started.elapsed().as_secs());
            lock(&rows).push(Row { cell, tally });
        }
    };
    let ended: Vec<Result<()>> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..args.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| Err(anyhow!("a lane panicked")))).collect()
    });
    ended.into_iter().collect::<Result<()>>()?;
    Ok(rows.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Oncegate has to be right in every cell, and every control wrong.
fn verdict(rows: &[Row]) -> ExitCode {
    let mut right = true;
    for row in rows {
        let Row { cell, tally } = row;
        if cell.system == "oncegate" && !tally.is_right() {
            right = false;
            eprintln!("wrong: {} hosts, {}: {tally:?}", cell.callers, cell.mode);
        }
        if cell.system != "oncegate" && tally.duplicates == 0 {
            right = false;
            eprintln!("the control was not caught: {}; the oracle proves nothing", cell.system);
        }
    }
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
