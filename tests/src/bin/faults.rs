//! The fault matrix as a program; `cargo xtask faults` builds what it needs and runs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use oncegate_tests::faults::matrix::{CONTROLS, Profile, beside};
use oncegate_tests::faults::row::{Cell, Row, Tally};
use oncegate_tests::faults::table::{self, Title};
use oncegate_tests::faults::unit::Unit;

/// The fault matrix: kills in every step, in every mode of a provider, judged by the provider's count
#[derive(Parser)]
struct Args {
    /// How much is tried
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    /// Drive other systems beside Oncegate, a small matrix each
    #[arg(long)]
    baselines: bool,
    /// Effects of each cell beside others
    #[arg(long, default_value_t = 2)]
    effects: usize,
    /// Decides all chances
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this mode, kill point, tool, system, or `mixed` values; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Go on where the last run with this profile and seed ended
    #[arg(long)]
    resume: bool,
    /// Units that run beside each other; most of the time they wait for a provider that hangs
    #[arg(long, default_value_t = 5)]
    lanes: usize,
    /// Where `table.md` and `rows.json` go
    #[arg(long)]
    out: PathBuf,
    /// Where the state of a run is kept
    #[arg(long)]
    state: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let work = Work::of(&args)?;
    let ended = work.run(args.lanes.max(1));
    let rows = work.rows();
    let title = if args.baselines { "Oncegate beside others" } else { "The fault matrix" };
    let mode = if args.baselines { "--baselines".to_owned() } else { format!("--profile {}", args.profile.name()) };
    let only: String = args.only.iter().map(|name| format!(" --only \"{name}\"")).collect();
    let command = format!("cargo xtask faults {mode}{only}");
    table::write(&args.out, &Title { heading: title, command: &command, seed: args.seed }, &rows)?;
    ended?;
    Ok(verdict(&args, &rows))
}

/// What has to be done, and what is done.
struct Work {
    seed: u64,
    queue: Mutex<VecDeque<Unit>>,
    done: Mutex<BTreeMap<String, Row>>,
    state: Mutex<fs::File>,
    bar: ProgressBar,
    weights: BTreeMap<String, u64>,
}

impl Work {
    fn of(args: &Args) -> Result<Self> {
        let units = if args.baselines { beside(args.effects) } else { args.profile.units() };
        let name = if args.baselines { "baselines" } else { args.profile.name() };
        let file = args.state.join(format!("state-{name}-{}.jsonl", args.seed));
        fs::create_dir_all(&args.state)?;
        if !args.resume {
            fs::remove_file(&file).or_else(|error| if file.exists() { Err(error) } else { Ok(()) })?;
        }
        let done = known(&file)?;
        let state = fs::OpenOptions::new().create(true).append(true).open(&file)?;
        let mut weights = BTreeMap::new();
        let wanted = wanted(&args.only, &units.iter().flat_map(|unit| unit.cells(args.seed)).collect::<Vec<_>>())?;
        for unit in &units {
            let cells = unit.cells(args.seed).into_iter().filter(|cell| wanted.contains(&cell.id()));
            weights.extend(cells.map(|cell| (cell.id(), unit.weight(&cell))));
        }
        let bar = bar(weights.values().sum());
        bar.inc(weights.iter().filter(|(id, _)| done.contains_key(*id)).map(|(_, weight)| weight).sum());
        Ok(Self {
            seed: args.seed,
            queue: Mutex::new(units.into()),
            done: Mutex::new(done),
            state: Mutex::new(state),
            bar,
            weights,
        })
    }

    /// All units, so many at a time. The first error ends it; a lane finishes its unit.
    fn run(&self, lanes: usize) -> Result<()> {
        let ended = thread::scope(|scope| {
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(|| self.lane())).collect();
            let ends = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| Err(anyhow!("a lane panicked"))));
            ends.collect::<Vec<_>>()
        });
        self.bar.finish();
        ended.into_iter().collect()
    }

    fn lane(&self) -> Result<()> {
        loop {
            let Some(unit) = lock(&self.queue).pop_front() else { return Ok(()) };
            let is_done = |cell: &Cell| {
                let id = cell.id();
                !self.weights.contains_key(&id) || lock(&self.done).contains_key(&id)
            };
            let run = unit.run(self.seed, &is_done, &|row| self.report(row));
            if let Err(error) = run {
                lock(&self.queue).clear();
                return Err(error);
            }
        }
    }

    /// Keeps a row and says how far the run is.
    fn report(&self, row: Row) -> Result<()> {
        writeln!(lock(&self.state), "{}", serde_json::to_string(&row)?)?;
        let id = row.cell.id();
        if !row.tally.is_right() && row.cell.system == "oncegate" {
            self.bar.println(format!("{id}: {:?}", row.tally));
        }
        self.bar.inc(self.weights.get(&id).copied().unwrap_or_default());
        let mut done = lock(&self.done);
        done.insert(id, row);
        let total = sum(done.values());
        self.bar
            .set_message(format!("{} effects, {} duplicates, {} lost", total.effects, total.duplicates, total.lost));
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let done = lock(&self.done);
        done.iter().filter(|(id, _)| self.weights.contains_key(*id)).map(|(_, row)| row.clone()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rows of an earlier run.
fn known(file: &PathBuf) -> Result<BTreeMap<String, Row>> {
    let Ok(file) = fs::File::open(file) else { return Ok(BTreeMap::new()) };
    let mut known = BTreeMap::new();
    for line in BufReader::new(file).lines() {
        // A run that was killed may have left half a line.
        if let Ok(row) = serde_json::from_str::<Row>(&line.context("the state cannot be read")?) {
            known.insert(row.cell.id(), row);
        }
    }
    Ok(known)
}

/// What a cell is known by to people.
fn names(cell: &Cell) -> [&str; 5] {
    [&cell.mode, &cell.kill_point, &cell.scenario, &cell.system, &cell.values]
}

/// Two modes are one or the other; a mode and a kill point are both.
fn wanted(only: &[String], cells: &[Cell]) -> Result<BTreeSet<String>> {
    for name in only {
        if !cells.iter().any(|cell| names(cell).contains(&name.as_str())) {
            let modes: BTreeSet<&str> = cells.iter().map(|cell| cell.mode.as_str()).collect();
            bail!("--only {name:?}: no cell has this name; the modes are {modes:?}");
        }
    }
    let asked: [Vec<&String>; 5] = std::array::from_fn(|kind| {
        only.iter().filter(|name| cells.iter().any(|cell| names(cell)[kind] == name.as_str())).collect()
    });
    let fits = |cell: &&Cell| {
        let named = names(cell).into_iter().zip(&asked);
        named.into_iter().all(|(name, asked)| asked.is_empty() || asked.iter().any(|asked| *asked == name))
    };
    Ok(cells.iter().filter(fits).map(Cell::id).collect())
}

/// The work is measured in milliseconds that it is expected to take.
fn bar(weight: u64) -> ProgressBar {
    let bar = ProgressBar::new(weight);
    let template = "{elapsed_precise} [{wide_bar}] {percent}% eta {eta} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn sum<'a>(rows: impl Iterator<Item = &'a Row>) -> Tally {
    let mut total = Tally::default();
    rows.for_each(|row| total.add(row.tally));
    total
}

/// Oncegate has to be right in every cell, and the control wrong in some.
fn verdict(args: &Args, rows: &[Row]) -> ExitCode {
    let of = |name: &str| sum(rows.iter().filter(|row| row.cell.system == name));
    let ours = of("oncegate");
    println!("{} rows in {}\noncegate: {ours:?}", rows.len(), args.out.join("table.md").display());
    let mut right = true;
    for row in rows.iter().filter(|row| row.cell.system == "oncegate" && !row.tally.is_right()) {
        right = false;
        eprintln!("wrong: {}: {:?}", row.cell.id(), row.tally);
    }
    for name in CONTROLS {
        let control = of(name);
        if control.effects == 0 {
            continue;
        }
        println!("{name}: {control:?}");
        if control.duplicates == 0 {
            right = false;
            eprintln!("the control was not caught: {name}; the oracle proves nothing");
        }
    }
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
