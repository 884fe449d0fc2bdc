//! What a ledger costs as it grows: append, the read of one effect, bytes per effect, and opening after SIGKILL.
//!
//! One ledger is filled through the `Ledger` trait to ten thousand effects (three events each), then ten times as
//! many, and so on up to [`SIZE`] (a million, or as many as the environment says); at each size the same is measured,
//! and set beside the smallest. Keys are random, so every read and every head lies somewhere else in the trees.
//! Pages are warm only as far as the ledger's own cache and the kernel keep them.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use oncegate_ledger::{Append, Ledger, StreamId};
use sha2::{Digest, Sha256};

use super::commits::load::{self, Store};
use super::commits::ours::{Ours, complete, judged, reserve};
use crate::plot::{self, Line};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};

const PART: &str = "growth";
/// The environment variable with how many effects the largest ledger has.
pub const SIZE: &str = "ONCEGATE_BENCH_EFFECTS";
const SMALLEST: u64 = 10_000;
const LARGEST: u64 = 1_000_000;
/// Effects in one append while it is filled.
const FILL_EFFECTS: u64 = 300;
/// Callers while appends are measured.
const CALLERS: usize = 64;
const APPENDED: usize = 4_000;
const READ: usize = 4_000;
const RUNS: usize = 5;
/// Bytes are given to a file in units of so many, whatever its file system.
const STAT_BLOCK_BYTES: u64 = 512;
const GOAL: f64 = 1.5;
const RECOVERY_SECONDS: f64 = 1.0;
/// How many appends the process that is killed has made before.
const BEFORE_KILL: usize = 200;

/// What was measured at one size.
struct At {
    effects: u64,
    /// Microseconds of an effect among many callers, of each run.
    append: Vec<f64>,
    /// Microseconds of a read, the median of each run.
    read: Vec<f64>,
    bytes: f64,
    recovery: Vec<f64>,
}

/// Measures the part.
///
/// # Errors
/// The ledger cannot be made, filled or read, or there is no room for it.
pub fn measure(effort: Effort, pictures: &Path) -> Result<Vec<Row>> {
    let largest = std::env::var(SIZE).map_or(Ok(LARGEST), |size| size.parse()).context(SIZE)?;
    let (smallest, largest) = if effort.smoke { (200, 1_000) } else { (SMALLEST, largest) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("oncegate-growth-").tempdir()?;
    let path = folder.path().join("ledger.redb");
    drop(runtime.block_on(Ours::new(&path))?);
    let mut sizes = Vec::new();
    let (mut filled, mut size) = (0, smallest);
    while size <= largest.max(smallest) {
        sizes.push(runtime.block_on(at(effort, &path, filled, size))?);
        (filled, size) = (size, size * if effort.smoke { 5 } else { 10 });
    }
    std::fs::create_dir_all(pictures)?;
    draw(&sizes, pictures)?;
    rows(&sizes)
}

async fn at(effort: Effort, path: &Path, filled: u64, size: u64) -> Result<At> {
    let url = format!("redb:{}", path.display());
    let ledger = oncegate_ledger::open(&url).await?;
    fill(&*ledger, filled, size).await?;
    drop(ledger);
    let bytes = bytes(path)? as f64 / size as f64;
    let mut recovery = Vec::new();
    for _ in 0..effort.runs(3) {
        recovery.push(recover(path).await?);
    }
    let ledger = oncegate_ledger::open(&url).await?;
    let ours: Arc<dyn Store> = Arc::new(Ours::over(Arc::clone(&ledger)));
    let (mut append, mut read) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs(RUNS) {
        append.push(1e6 / load::run(&ours, CALLERS, effort.size(APPENDED, 128)).await?.per_second);
        read.push(read_some(&*ledger, size, effort.size(READ, 100)).await?);
    }
    Ok(At { effects: size, append, read, bytes, recovery })
}

/// The key of an effect by its number: spread like any digest.
fn key(number: u64) -> [u8; 32] {
    Sha256::digest(number.to_be_bytes()).into()
}

async fn fill(ledger: &dyn Ledger, from: u64, to: u64) -> Result<()> {
    let mut next = from;
    while next < to {
        let numbers = next..to.min(next + FILL_EFFECTS);
        next = numbers.end;
        let events: [fn([u8; 32]) -> Append; 3] = [reserve, complete, judged];
        let mut batch = Vec::new();
        for event in events {
            batch.extend(numbers.clone().map(|number| event(key(number))));
        }
        ledger.append(batch).await?;
    }
    Ok(())
}

async fn read_some(ledger: &dyn Ledger, size: u64, count: usize) -> Result<f64> {
    let mut times = Times::default();
    for _ in 0..count {
        let stream = StreamId::effect(key(rand::random_range(0..size)));
        let started = Instant::now();
        let records = ledger.read(stream).await?;
        times.push(started.elapsed());
        ensure!(records.len() == 3, "an effect has {} records", records.len());
    }
    Ok(times.median())
}

/// What the ledger and its large bytes take on the disk.
fn bytes(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(path.metadata()?.blocks() * STAT_BLOCK_BYTES)
}

/// Seconds until it is open, after a process that wrote to it was killed.
async fn recover(path: &Path) -> Result<f64> {
    let mut writer = Writer::start(path)?;
    writer.wait_for(BEFORE_KILL)?;
    writer.process.kill()?;
    writer.process.wait()?;
    let started = Instant::now();
    let ledger = oncegate_ledger::open(&format!("redb:{}", path.display())).await?;
    let took = started.elapsed();
    ensure!(ledger.identity().role == oncegate_ledger::Role::Owner, "somebody else owns it");
    Ok(took.as_secs_f64())
}

/// A process that appends until it is killed.
struct Writer {
    process: Child,
    /// Kept open: the writer says something after each append.
    said: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(path: &Path) -> Result<Writer> {
        let mut process = Command::new(super::beside("growing")?).arg(path).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("the writer has no output")?;
        Ok(Writer { process, said: BufReader::new(output).lines() })
    }

    fn wait_for(&mut self, appends: usize) -> Result<()> {
        let lines = self.said.by_ref().map_while(Result::ok).take(appends).count();
        ensure!(lines == appends, "the writer ended early");
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Killed already, unless something failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn rows(sizes: &[At]) -> Result<Vec<Row>> {
    let (first, last) = (sizes.first().context("no size")?, sizes.last().context("no size")?);
    let against = format!("at {} effects", first.effects);
    let ratio = |name: &str, ours: &[f64], theirs: &[f64], unit: &str| {
        let pairs: Vec<(f64, f64)> = ours.iter().copied().zip(theirs.iter().copied()).collect();
        let all: Vec<String> = sizes.iter().map(|at| at.effects.to_string()).collect();
        let (now, then) = (Spread::of(ours).median, Spread::of(theirs).median);
        let detail = format!("{now:.1} {unit} beside {then:.1}; measured at {}", all.join(", "));
        Row::new(
            PART,
            &format!("{name}, {} effects", last.effects),
            &against,
            Goal::AtMost(GOAL),
            Spread::of_ratios(&pairs),
        )
        .with(detail)
    };
    let recovery = Row::new(
        PART,
        &format!("recovery after SIGKILL, {} effects", last.effects),
        "one second",
        Goal::AtMost(RECOVERY_SECONDS),
        Spread::of(&last.recovery),
    );
    let each: Vec<String> =
        sizes.iter().map(|at| format!("{:.3} s at {}", Spread::of(&at.recovery).median, at.effects)).collect();
    Ok(vec![
        ratio("append", &last.append, &first.append, "µs an effect among 64 callers"),
        ratio("replay (read of one effect)", &last.read, &first.read, "µs"),
        ratio("bytes per effect", &[last.bytes], &[first.bytes], "bytes"),
        recovery.in_unit("s").with(each.join(", ")),
    ])
}

fn draw(sizes: &[At], pictures: &Path) -> Result<()> {
    let line = |name: &str, figure: &dyn Fn(&At) -> f64| {
        let first = sizes.first().map_or(1.0, figure);
        let points = sizes.iter().map(|at| (at.effects as f64, figure(at) / first)).collect();
        Line { name: name.to_owned(), points }
    };
    let lines = [
        line("append", &|at| Spread::of(&at.append).median),
        line("replay", &|at| Spread::of(&at.read).median),
        line("bytes per effect", &|at| at.bytes),
    ];
    plot::growth(&lines, &pictures.join("growth.svg"))
}

/// What `recover` kills: appends to the ledger, a line for each, for ever.
///
/// # Errors
/// The ledger cannot be opened or appended to.
pub fn grow(path: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ledger = oncegate_ledger::open(&format!("redb:{}", path.display())).await?;
        loop {
            let key: [u8; 32] = rand::random();
            let appended = tokio::time::timeout(Duration::from_secs(60), ledger.append(vec![reserve(key)])).await;
            appended.context("an append takes for ever")??;
            println!("appended");
        }
    })
}
