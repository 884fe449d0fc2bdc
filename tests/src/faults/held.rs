//! An answer with a token whose last bytes never come, and a kill while it is held open: what had been
//! there for longer than the sync bound is in the ledger, before anything is asked again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::chance::Chance;
use super::oracle::Book;
use super::row::Tally;
use super::scenario::Ask;
use super::steps::{Targets, call, finish};
use super::system::System;
use super::trouble::Trouble;
use crate::harness::Running;

/// Bytes that arrived are synced at the latest so much later.
const SYNC_BOUND: Duration = Duration::from_millis(50);
/// The two syncs of that commit on a disk that others use too; what is younger may be lost.
const SYNC_TAKES: Duration = Duration::from_millis(150);
/// The provider holds the body open for longer than this; the host would give up after 600 ms.
const AGE_MAX: Duration = Duration::from_millis(500);
/// The effect has come to be by then.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// One cell of so many targets.
///
/// # Errors
/// A part of the machinery failed.
pub fn run(
    system: &dyn System,
    trouble: &Trouble,
    count: usize,
    chance: &mut Chance,
    targets: &mut Targets,
) -> Result<Tally> {
    let targets = targets.take(count);
    let mut book = Book::of(&targets);
    let provider = system.provider();
    let mut old = Vec::new();
    for target in &targets {
        trouble.begin(&provider, system.scenario(), None)?;
        let age = cut_off(system, chance, target, &mut book)?;
        if age >= SYNC_BOUND + SYNC_TAKES {
            old.push(target.clone());
        }
    }
    book.lost = missing(system, &old)?;
    for target in &targets {
        call(system, chance, &mut book, std::slice::from_ref(target))?;
    }
    trouble.end(&provider)?;
    finish(system, chance, &mut book, &targets)?;
    book.judge(system)
}

/// Kills a call while its answer is held open; how old the answer was.
fn cut_off(system: &dyn System, chance: &mut Chance, target: &String, book: &mut Book) -> Result<Duration> {
    let (provider, kind) = (system.provider(), system.scenario().kind);
    let before = provider.count(kind)?;
    let words = chance.words();
    let ask = Ask { targets: std::slice::from_ref(target), words: &words, value: None };
    let running = Running::start(&mut system.call(&ask)?)?;
    let started = Instant::now();
    while provider.count(kind)? == before {
        ensure!(started.elapsed() < MADE_WITHIN, "no effect within {MADE_WITHIN:?}");
        thread::sleep(Duration::from_millis(1));
    }
    // The provider writes the answer as soon as it counts the effect.
    let seen = Instant::now();
    thread::sleep(chance.between(Duration::ZERO, AGE_MAX));
    let age = seen.elapsed();
    book.hear(&running.kill()?, ask.targets);
    Ok(age)
}

/// How many of these targets have an object whose identifier is nowhere in what is stored.
fn missing(system: &dyn System, old: &[String]) -> Result<u64> {
    let Some(stored) = system.stored()? else { return Ok(0) };
    let scenario = system.scenario();
    let made = system.provider().effects()?;
    let is_old = |object| (scenario.target_of)(object).is_some_and(|target| old.iter().any(|old| old == target));
    let receipts = made.iter().filter(|effect| effect.kind == scenario.kind && is_old(&effect.object));
    let lost = receipts.filter(|effect| !stored.contains(&hex(&effect.id))).count();
    Ok(lost as u64)
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
