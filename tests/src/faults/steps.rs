//! Single effects, each cut off at one system call: killed, killed again while it recovers, or stopped
//! and woken.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal as OsSignal, kill_process};

use super::chance::Chance;
use super::moments::Moment;
use super::oracle::Book;
use super::row::Tally;
use super::scenario::{Ask, Scenario};
use super::system::System;
use super::trouble::Trouble;
use crate::harness::{Run, Running};
use crate::killat::{KillPoint, Signal};

/// Calls that an agent makes at the end, until it hears of success.
const LAST_CALLS_MAX: usize = 5;
/// Between two of them.
const LAST_CALLS_PAUSE: Duration = Duration::from_millis(300);
/// Targets of one of them.
const TARGETS_MAX: usize = 300;
/// A process that has not stopped itself by then has passed the point.
const STOPS_WITHIN: Duration = Duration::from_secs(20);
/// The longest pause of a stopped process; `send-within` ends in the middle of it.
const STOPPED_MAX: Duration = Duration::from_millis(1_800);
/// A process ends by then.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// Hands out targets that nobody has asked for yet.
#[derive(Debug)]
pub struct Targets {
    scenario: &'static Scenario,
    next: u64,
}

impl Targets {
    /// The first one is the known object.
    pub fn of(scenario: &'static Scenario) -> Self {
        Self { scenario, next: 1 }
    }

    /// So many new ones.
    pub fn take(&mut self, count: usize) -> Vec<String> {
        (0..count)
            .map(|_| {
                self.next += 1;
                (self.scenario.target)(self.next)
            })
            .collect()
    }
}

/// One cell: a target for each point.
///
/// # Errors
/// A part of the machinery failed; what the program said is never one.
pub fn run(
    system: &dyn System,
    trouble: &Trouble,
    moment: &Moment,
    points: &[Option<KillPoint>],
    chance: &mut Chance,
    targets: &mut Targets,
) -> Result<Tally> {
    let targets = targets.take(points.len());
    let mut book = Book::of(&targets);
    let provider = system.provider();
    for (target, point) in targets.iter().zip(points) {
        trouble.begin(&provider, system.scenario(), None)?;
        let target = std::slice::from_ref(target);
        match point {
            Some(point) if point.signal == Signal::Stop => stop(system, *point, chance, &mut book, target)?,
            Some(point) => kill(system, *point, chance, &mut book, target)?,
            None => call(system, chance, &mut book, target)?,
        }
        if moment.name == "during recovery" {
            let second = chance.one(&moment.points).copied().context("no points of a recovery")?;
            kill(system, second, chance, &mut book, target)?;
        }
        thread::sleep(trouble.window());
        call(system, chance, &mut book, target)?;
    }
    trouble.end(&provider)?;
    if moment.name == "during recovery" {
        cut_off_reconcile(system, moment, chance, &mut book)?;
    }
    finish(system, chance, &mut book, &targets)?;
    book.judge(system)
}

/// One call to its end, in new words.
///
/// # Errors
/// It cannot be started.
pub fn call(system: &dyn System, chance: &mut Chance, book: &mut Book, targets: &[String]) -> Result<()> {
    let words = chance.words();
    let run = Running::start(&mut system.call(&Ask { targets, words: &words, value: None })?)?.wait(ENDS_WITHIN)?;
    book.hear(&run, targets);
    Ok(())
}

fn kill(system: &dyn System, point: KillPoint, chance: &mut Chance, book: &mut Book, targets: &[String]) -> Result<()> {
    let words = chance.words();
    let mut command = system.call(&Ask { targets, words: &words, value: None })?;
    point.apply(&mut command)?;
    let run = Running::start(&mut command)?.wait(ENDS_WITHIN)?;
    book.hear(&run, targets);
    Ok(())
}

/// A sender stops; another caller comes, whose process has the ledger or has to ask the stopped one for
/// it; the sender wakes.
fn stop(system: &dyn System, point: KillPoint, chance: &mut Chance, book: &mut Book, targets: &[String]) -> Result<()> {
    let keeper = if chance.below(2) == 0 { None } else { keeper(system)? };
    let (first, second) = (chance.words(), chance.words());
    let mut command = system.call(&Ask { targets, words: &first, value: None })?;
    point.apply(&mut command)?;
    let sleeper = Running::start(&mut command)?;
    let started = Instant::now();
    while state(sleeper.pid()).is_some_and(|state| !matches!(state, 'T' | 'Z')) && started.elapsed() < STOPS_WITHIN {
        thread::sleep(Duration::from_millis(2));
    }
    book.cut_off += u64::from(state(sleeper.pid()) == Some('T'));
    let rival = Running::start(&mut system.call(&Ask { targets, words: &second, value: None })?)?;
    thread::sleep(chance.between(Duration::from_millis(50), STOPPED_MAX));
    let pid = i32::try_from(sleeper.pid()).ok().and_then(Pid::from_raw).context("no process")?;
    // It may have ended before its point came.
    kill_process(pid, OsSignal::CONT).ok();
    for running in [sleeper, rival] {
        let run = running.wait(ENDS_WITHIN)?;
        book.hear(&run, targets);
    }
    drop(keeper);
    Ok(())
}

/// A process that has the ledger and does nothing with it.
fn keeper(system: &dyn System) -> Result<Option<Running>> {
    let Some(mut command) = system.crowd() else { return Ok(None) };
    let keeper = Running::start(&mut command)?;
    keeper.read_line(STOPS_WITHIN)?;
    Ok(Some(keeper))
}

/// The letter that the system gives a process: T is stopped, Z has ended.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// The reconcile after the crash crashes too.
fn cut_off_reconcile(system: &dyn System, moment: &Moment, chance: &mut Chance, book: &mut Book) -> Result<()> {
    let Some(mut command) = system.reconcile() else { return Ok(()) };
    if let Some(point) = chance.one(&moment.points) {
        point.apply(&mut command)?;
    }
    let run = Running::start(&mut command)?.wait(ENDS_WITHIN)?;
    book.cut_off += u64::from(run.was_killed());
    Ok(())
}

/// Reconciles and asks again, until every target is told as done or asking does not help.
///
/// # Errors
/// A process cannot be started.
pub fn finish(system: &dyn System, chance: &mut Chance, book: &mut Book, targets: &[String]) -> Result<()> {
    reconcile(system)?;
    let at_once = if system.scenario().many { TARGETS_MAX } else { 1 };
    for asked in targets.chunks(at_once) {
        call(system, chance, book, asked)?;
    }
    for _ in 1..LAST_CALLS_MAX {
        let open = book.open();
        if open.is_empty() {
            break;
        }
        thread::sleep(LAST_CALLS_PAUSE);
        reconcile(system)?;
        for target in open {
            call(system, chance, book, &[target])?;
        }
    }
    Ok(())
}

/// What finds out about open rows.
///
/// # Errors
/// It cannot be started.
pub fn reconcile(system: &dyn System) -> Result<()> {
    if let Some(mut command) = system.reconcile() {
        let run: Run = Running::start(&mut command)?.wait(ENDS_WITHIN)?;
        anyhow::ensure!(matches!(run.code, Some(0 | 4)), "reconciling failed: {run:?}");
    }
    Ok(())
}
