//! Hundreds of effects a call, several processes on one ledger, each killed at random moments and asked
//! again, while one request in so many meets the provider's trouble.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::chance::Chance;
use super::oracle::Book;
use super::row::Tally;
use super::scenario::Ask;
use super::steps::{Targets, finish, reconcile};
use super::system::System;
use super::trouble::Trouble;
use crate::harness::Running;

/// How a cell is driven.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Processes at once; the last one does the first one's work again.
    pub processes: usize,
    /// Effects of one call.
    pub effects: usize,
    /// Kills of each process.
    pub kills: usize,
    /// One request in so many meets the trouble.
    pub every: u64,
}

/// Calls of one process until it is done; the rest is for the end.
const CALLS_MAX: usize = 40;
/// A kill comes while this many milliseconds for each effect pass: sooner than the call ends.
const KILL_MS_AN_EFFECT: u64 = 12;
/// A call ends by then.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
/// After an answer that something is open.
const PAUSE: Duration = Duration::from_millis(50);

/// One cell.
///
/// # Errors
/// A part of the machinery failed.
pub fn run(
    system: &dyn System,
    trouble: &Trouble,
    volume: Volume,
    chance: &mut Chance,
    targets: &mut Targets,
) -> Result<Tally> {
    let mut shares: Vec<Vec<String>> = (1..volume.processes).map(|_| targets.take(volume.effects)).collect();
    let all: Vec<String> = shares.concat();
    shares.extend(shares.first().cloned());
    let wave = Wave { system, trouble, book: Mutex::new(Book::of(&all)), pulse: Mutex::new(()) };
    trouble.begin(&system.provider(), system.scenario(), Some(volume.every))?;
    thread::scope(|scope| {
        let drivers: Vec<_> = shares
            .iter()
            .map(|share| {
                let chance = Chance::of(chance.below(u64::MAX), "process");
                let wave = &wave;
                scope.spawn(move || wave.drive(share, volume.kills, chance))
            })
            .collect();
        drivers
            .into_iter()
            .try_for_each(|driver| driver.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a driver panicked"))))
    })?;
    trouble.end(&system.provider())?;
    let mut book = wave.book.into_inner().unwrap_or_else(PoisonError::into_inner);
    finish(system, chance, &mut book, &all)?;
    book.judge(system)
}

struct Wave<'a> {
    system: &'a dyn System,
    trouble: &'a Trouble,
    book: Mutex<Book>,
    /// One driver at a time gives the provider a moment without its outage.
    pulse: Mutex<()>,
}

impl Wave<'_> {
    fn drive(&self, share: &[String], mut kills: usize, mut chance: Chance) -> Result<()> {
        let within = Duration::from_millis(KILL_MS_AN_EFFECT * share.len() as u64);
        for _ in 0..CALLS_MAX {
            let words = chance.words();
            let ask = Ask { targets: share, words: &words, value: None };
            let running = Running::start(&mut self.system.call(&ask)?)?;
            let run = if kills > 0 {
                kills -= 1;
                thread::sleep(chance.between(Duration::from_millis(20), within));
                running.kill()?
            } else {
                running.wait(ENDS_WITHIN)?
            };
            let success = self.book.lock().unwrap_or_else(PoisonError::into_inner).hear(&run, share);
            if success {
                return Ok(());
            }
            if run.code == Some(4) {
                self.wait(&mut chance)?;
            }
        }
        Ok(())
    }

    /// Something is open: where lookups are down, they work for a moment.
    fn wait(&self, chance: &mut Chance) -> Result<()> {
        thread::sleep(chance.between(PAUSE, PAUSE * 2));
        if !self.trouble.lists_down {
            return Ok(());
        }
        let _one = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        let provider = self.system.provider();
        self.trouble.pause(&provider, self.system.scenario(), true)?;
        reconcile(self.system)?;
        self.trouble.pause(&provider, self.system.scenario(), false)
    }
}
