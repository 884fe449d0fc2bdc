//! `cargo xtask fuzz`: libFuzzer looks for bytes under which a target panics, hangs or takes memory without end.

mod engine;
mod report;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::guests::{root, run};
use report::Row;

/// One input may take so long, on a machine that does much else: most take a thousandth of a second.
const INPUT_SECONDS_MAX: u32 = 25;
/// Memory of a target: what the largest input may become, and libFuzzer's own.
const MEMORY_MIB_MAX: u32 = 1024;
/// Bytes of an input: the longest contract that an example has, and room.
const INPUT_BYTES_MAX: u32 = 8 << 10;

/// Try the fuzz targets, two at a time; a finding is an error, and its input is kept
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target; else by the profile
    #[arg(long)]
    seconds: Option<u64>,
    /// ci (a minute each) or long (an hour each)
    #[arg(long, default_value = "ci")]
    profile: Profile,
    /// Afterwards add to the kept corpora what reaches more than they do
    #[arg(long)]
    keep: bool,
    /// Try this one input alone, of the one target that is named
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Names of folders under tests/fuzz/corpus; none: all
    targets: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Profile {
    Ci,
    Long,
}

impl Fuzz {
    /// A minute for each, as a check.
    pub(crate) fn minute() -> Self {
        Self { seconds: None, profile: Profile::Ci, keep: false, input: None, targets: Vec::new() }
    }

    /// Builds and runs.
    pub(crate) fn run(&self) -> Result<()> {
        let root = root()?;
        let all = names(&root)?;
        let targets = if self.targets.is_empty() { all.clone() } else { self.targets.clone() };
        let unknown = targets.iter().find(|name| !all.contains(name));
        ensure!(unknown.is_none(), "there is no target {}; there are {}", unknown.map_or("", |n| n), all.join(", "));
        let fuzzer = Fuzzer { program: build(&root)?, root };
        if let Some(input) = &self.input {
            let [target] = &targets[..] else { bail!("name the one target that reads {}", input.display()) };
            return run(fuzzer.command(target)?.arg(input).env("RUST_BACKTRACE", "1"));
        }
        let rows = fuzzer.all(&targets, self.seconds())?;
        eprintln!("{}", report::table(&rows));
        let findings: Vec<_> = rows.iter().filter(|row| row.failed).map(|row| row.finding(&fuzzer.root)).collect();
        ensure!(findings.is_empty(), "{}", findings.join("\n"));
        if self.keep { targets.iter().try_for_each(|target| fuzzer.keep(target)) } else { Ok(()) }
    }

    const fn seconds(&self) -> u64 {
        match (self.seconds, self.profile) {
            (Some(seconds), _) => seconds,
            (None, Profile::Ci) => 60,
            (None, Profile::Long) => 3600,
        }
    }
}

/// A target is what has a corpus.
fn names(root: &Path) -> Result<Vec<String>> {
    let folders = fs::read_dir(root.join("tests/fuzz/corpus")).context("tests/fuzz/corpus")?;
    let mut names: Vec<_> = folders.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Builds the program; what it is made of is built already, but for the crates of this repository.
fn build(root: &Path) -> Result<PathBuf> {
    let engine = engine::build(root)?;
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(root)
        .args(["build", "--quiet", "--workspace", "--bin", "fuzz", "--features", "oncegate-fuzz/libfuzzer"])
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("tests/fuzz/cover.sh"))
        .env("ONCEGATE_LIBFUZZER", engine);
    run(&mut cargo).context("the fuzz targets")?;
    Ok(std::env::current_exe()?.with_file_name("fuzz"))
}

struct Fuzzer {
    program: PathBuf,
    root: PathBuf,
}

impl Fuzzer {
    fn command(&self, target: &str) -> Result<Command> {
        let findings = self.root.join("target/fuzz/findings");
        fs::create_dir_all(&findings)?;
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.root)
            .env("ONCEGATE_FUZZ_TARGET", target)
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(joined("-artifact_prefix=", &findings.join(format!("{target}-"))));
        Ok(command)
    }

    /// What this run finds, and the corpus that is kept: libFuzzer writes to the first.
    fn folders(&self, target: &str) -> Result<[PathBuf; 2]> {
        let found = self.root.join("target/fuzz/found").join(target);
        fs::create_dir_all(&found)?;
        Ok([found, self.root.join("tests/fuzz/corpus").join(target)])
    }

    fn all(&self, targets: &[String], seconds: u64) -> Result<Vec<Row>> {
        let lanes = std::thread::available_parallelism()?.get().min(targets.len()).max(1);
        let bar = ProgressBar::new(targets.len().div_ceil(lanes) as u64 * seconds);
        bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} s, {eta} left; {msg}")?);
        let (queue, ended) = (std::sync::Mutex::new(targets.iter()), mpsc::channel());
        let (tell, told) = ended;
        let mut rows = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            for _ in 0..lanes {
                let (tell, queue) = (tell.clone(), &queue);
                scope.spawn(move || {
                    while let Some(target) = next(queue) {
                        // Nobody listens any more when another target could not be started.
                        let _ = tell.send(self.one(target, seconds));
                    }
                });
            }
            let started = Instant::now();
            while rows.len() < targets.len() {
                bar.set_position(started.elapsed().as_secs());
                bar.set_message(format!("{} of {} targets done", rows.len(), targets.len()));
                match told.recv_timeout(Duration::from_secs(1)) {
                    Ok(row) => rows.push(row?),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        rows.sort_by(|one, other| one.target.cmp(&other.target));
        Ok(rows)
    }

    fn one(&self, target: &str, seconds: u64) -> Result<Row> {
        let log = self.root.join(format!("target/fuzz/{target}.log"));
        let mut command = self.command(target)?;
        let words = self.root.join(format!("tests/fuzz/words/{target}.dict"));
        if words.exists() {
            command.arg(joined("-dict=", &words));
        }
        command.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
        command.args(self.folders(target)?).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let status = command.status().with_context(|| format!("{} cannot be started", self.program.display()))?;
        Ok(Row::read(target, status.success(), &String::from_utf8_lossy(&fs::read(&log)?)))
    }

    /// Adds what the kept corpus does not reach.
    fn keep(&self, target: &str) -> Result<()> {
        let [found, kept] = self.folders(target)?;
        let mut command = self.command(target)?;
        command.args(["-merge=1", "-verbosity=0"]).args([kept, found]).stderr(Stdio::null());
        run(&mut command).with_context(|| format!("the corpus of {target}"))
    }
}

fn next<'a>(queue: &std::sync::Mutex<std::slice::Iter<'a, String>>) -> Option<&'a String> {
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next()
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}
