//! Many callers on one key at once, in one process that is killed among them; all word their request
//! anew, and in some cells they disagree about a bound value.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::chance::Chance;
use super::oracle::Book;
use super::row::Tally;
use super::scenario::Ask;
use super::steps::{Targets, finish, reconcile};
use super::system::System;
use super::trouble::Trouble;
use crate::harness::{Run, Running};

/// How a cell is driven.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Callers on each key.
    pub callers: u32,
    /// Keys at once.
    pub keys: usize,
    /// They disagree about the bound value.
    pub mixed: bool,
    /// Processes that are killed among them, one after the other.
    pub kills: usize,
    /// Times that all of it is done, with new keys.
    pub rounds: usize,
}

/// So many last calls have a process each; more have one together.
const ALONE_MAX: usize = 32;
/// A process is ready by then.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// It is killed while this many milliseconds for each caller pass, and these beside.
const KILL_MS_A_CALLER: u64 = 4;
const KILL_MS: u64 = 100;
/// All of its callers are answered by then.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// One cell: processes that are killed, then one that runs to its end, then the last calls.
///
/// # Errors
/// A part of the machinery failed.
pub fn run(
    system: &dyn System,
    trouble: &Trouble,
    crowd: Crowd,
    chance: &mut Chance,
    targets: &mut Targets,
) -> Result<Tally> {
    let targets = targets.take(crowd.keys);
    let mut book = Book::of(&targets);
    let provider = system.provider();
    let within = Duration::from_millis(KILL_MS + KILL_MS_A_CALLER * u64::from(crowd.callers) * crowd.keys as u64);
    trouble.begin(&provider, system.scenario(), Some(3))?;
    let mut done = Vec::new();
    for n in 0..=crowd.kills {
        let killed = n < crowd.kills;
        let asks = asks(system, crowd, chance, &targets);
        let Some(mut command) = system.crowd() else { break };
        let run = drive(Running::start(&mut command)?, &asks, killed.then(|| chance.between(Duration::ZERO, within)))?;
        done.extend(hear(&mut book, &run, &asks));
        thread::sleep(trouble.window());
    }
    trouble.end(&provider)?;
    let last = Crowd { callers: 1, ..crowd };
    if crowd.mixed {
        last_with_values(system, chance, &mut book, &targets, done)?;
    } else if let (true, Some(mut command)) = (targets.len() > ALONE_MAX, system.crowd()) {
        reconcile(system)?;
        let asks = asks(system, last, chance, &targets);
        hear(&mut book, &drive(Running::start(&mut command)?, &asks, None)?, &asks);
        let open = book.open();
        finish(system, chance, &mut book, &open)?;
    } else {
        finish(system, chance, &mut book, &targets)?;
    }
    book.judge(system)
}

/// One caller.
struct Line {
    target: String,
    value: Option<u64>,
    text: String,
}

fn asks(system: &dyn System, crowd: Crowd, chance: &mut Chance, targets: &[String]) -> Vec<Line> {
    let values = system.scenario().values;
    let mut lines = Vec::new();
    for _ in 0..crowd.callers {
        for target in targets {
            let words = chance.words();
            let value = if crowd.mixed { chance.one(values).copied() } else { None };
            let ask = Ask { targets: std::slice::from_ref(target), words: &words, value };
            lines.push(Line { target: target.clone(), value, text: system.line(&ask) });
        }
    }
    lines
}

fn drive(mut running: Running, asks: &[Line], kill_after: Option<Duration>) -> Result<Run> {
    running.read_line(READY_WITHIN)?;
    for ask in asks {
        running.write_line(&ask.text)?;
    }
    running.close_stdin();
    match kill_after {
        Some(after) => {
            thread::sleep(after);
            running.kill()
        }
        None => running.wait(ENDS_WITHIN),
    }
}

/// Takes all answers; those of callers with a value of their own that were told as done.
fn hear(book: &mut Book, run: &Run, asks: &[Line]) -> Vec<(String, u64)> {
    book.cut_off += u64::from(run.was_killed());
    let mut done = Vec::new();
    for line in run.stdout.lines() {
        let Ok(told) = serde_json::from_str::<Value>(line) else { continue };
        let asked = told["ask"].as_u64().and_then(|n| asks.get(usize::try_from(n).ok()?));
        let Some(Line { target, value, .. }) = asked else { continue };
        let success = book.hear_one(&told["outcome"], std::slice::from_ref(target));
        done.extend(value.filter(|_| success).map(|value| (target.clone(), value)));
    }
    done
}

/// The value of each target's effect, by the provider's account.
fn values(system: &dyn System) -> Result<BTreeMap<String, u64>> {
    let made = system.provider().effects()?;
    let values = made.iter().filter_map(|effect| {
        let target = (system.scenario().target_of)(&effect.object)?;
        Some((target.to_owned(), effect.object["amount"].as_u64()?))
    });
    Ok(values.collect())
}

/// The last callers know what was decided: they ask with the value of the effect that there is. A caller
/// with any other value hears of no success: that effect was never made.
fn last_with_values(
    system: &dyn System,
    chance: &mut Chance,
    book: &mut Book,
    targets: &[String],
    mut done: Vec<(String, u64)>,
) -> Result<()> {
    reconcile(system)?;
    let decided = values(system)?;
    for target in targets {
        let ours = decided.get(target).copied().or(system.scenario().values.first().copied());
        let others = system.scenario().values.iter().copied().filter(|value| Some(*value) != ours);
        let targets = std::slice::from_ref(target);
        for value in others.take(1).chain(ours) {
            let words = chance.words();
            let ask = Ask { targets, words: &words, value: Some(value) };
            let run = Running::start(&mut system.call(&ask)?)?.wait(ENDS_WITHIN)?;
            if book.hear(&run, targets) {
                done.push((target.clone(), value));
            }
        }
    }
    let made = values(system)?;
    book.wrong += done.iter().filter(|(target, value)| made.get(target) != Some(value)).count() as u64;
    Ok(())
}
