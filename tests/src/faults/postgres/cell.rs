//! One cell: agents that ask hosts again and again while something goes wrong, then the last calls, then the verdict
//! of the provider's count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;

use super::super::chance::Chance;
use super::super::oracle::Book;
use super::super::row::{Cell, Tally};
use super::super::scenario;
use super::super::system::{Held, System as _};
use super::fault::{Done, Fault};
use super::field::Field;

/// Nobody waits longer for one answer; a stopped host gives none.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Last calls of all agents.
const LAST_ROUNDS_MAX: usize = 12;
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// From this round on hosts that still refuse are started anew, as whatever looks after them would.
const ANEW_FROM: usize = 4;
/// An agent asks for something new as often as not; else for one of the last so many.
const RECENT: u64 = 12;
/// Hosts that are asked for the same thing at the end.
const ASKED_EVERYWHERE: usize = 4;
const AGENTS: usize = 6;
/// Looks at the rows of all hosts until they are the same, and the pause between.
const LOOKS_MAX: usize = 10;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One cell, not yet run.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// What goes wrong.
    pub fault: Fault,
    /// So many hosts.
    pub hosts: usize,
    /// For so long, at least.
    pub lasts: Duration,
    /// So many things raced for; none: until the time is over.
    pub races: Option<u64>,
}

impl Trial {
    /// Its row's name.
    #[must_use]
    pub fn cell(&self, seed: u64) -> Cell {
        Cell {
            system: self.fault.system().to_owned(),
            ledger: "postgres".to_owned(),
            scenario: scenario::valued().name.to_owned(),
            mode: self.fault.name().to_owned(),
            kill_point: "at random".to_owned(),
            callers: u32::try_from(self.hosts).unwrap_or(u32::MAX),
            values: "same".to_owned(),
            seed,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// A part of the machinery failed, or hosts contradict each other; what a host said is no error.
    pub fn run(&self, seed: u64) -> Result<Tally> {
        let mut chance = Chance::of(seed, &self.cell(seed).id());
        let field = Field::new(self.fault, self.hosts)?;
        let until = Instant::now() + self.lasts.max(self.fault.lasts());
        let agents = Agents::new(&field, *self, until);
        let done = agents.work(&mut chance)?;
        let asked: Vec<String> = agents.targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut book = Book::of(&asked);
        for (target, told) in agents.transcript.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            book.hear_one(told, std::slice::from_ref(target));
        }
        last_calls(&field, &mut chance, &mut book, &asked)?;
        same_everywhere(&field, &mut chance, &mut book, &asked, matches!(self.fault, Fault::Apart | Fault::Forgetful))?;
        book.cut_off = done.hosts;
        let mut tally = book.judge(&field.fleet)?;
        tally.met = done.others;
        field.fleet.told(0, &["ledger", "verify"])?;
        Ok(tally)
    }
}

/// Agents that decide again, in other words and under new ids.
struct Agents<'a> {
    field: &'a Field,
    trial: Trial,
    until: Instant,
    targets: Mutex<Vec<String>>,
    transcript: Mutex<Vec<(String, Value)>>,
}

impl<'a> Agents<'a> {
    fn new(field: &'a Field, trial: Trial, until: Instant) -> Self {
        Self { field, trial, until, targets: Mutex::default(), transcript: Mutex::default() }
    }

    /// All of them, while the fault runs its course.
    fn work(&self, chance: &mut Chance) -> Result<Done> {
        let seeds: Vec<Chance> = (0..AGENTS).map(|n| Chance::of(chance.below(u64::MAX), &n.to_string())).collect();
        thread::scope(|scope| {
            let agents: Vec<_> = seeds.into_iter().map(|chance| scope.spawn(|| self.agent(chance))).collect();
            let done = self.trial.fault.run(self.field, chance, self.until);
            for agent in agents {
                agent.join().unwrap_or_else(|_| Err(anyhow!("an agent panicked")))?;
            }
            done
        })
    }

    fn goes_on(&self) -> bool {
        let asked = self.targets.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        self.trial.races.map_or_else(|| Instant::now() < self.until, |races| asked < races)
    }

    fn agent(&self, mut chance: Chance) -> Result<()> {
        while self.goes_on() {
            let races = self.trial.fault == Fault::Races;
            let target = self.target(&mut chance, races);
            let hosts = self.field.fleet.len();
            let first = usize::try_from(chance.below(hosts as u64))?;
            // All at the same moment, or one, or two.
            let count = if races { hosts.max(2) } else { 1 + usize::try_from(chance.below(2))? };
            let asked = (0..count).map(|n| self.ask(&mut chance, (first + n) % hosts, &target));
            let waiting: Vec<_> = asked.collect::<Result<_>>()?;
            if waiting.iter().all(Option::is_none) {
                thread::sleep(Duration::from_millis(50));
            }
            for answer in waiting.into_iter().flatten() {
                if let Ok(told) = answer.recv_timeout(ANSWER_WITHIN) {
                    self.transcript.lock().unwrap_or_else(PoisonError::into_inner).push((target.clone(), told));
                }
            }
        }
        Ok(())
    }

    fn ask(&self, chance: &mut Chance, host: usize, target: &str) -> Result<Option<std::sync::mpsc::Receiver<Value>>> {
        let arguments = self.field.fleet.arguments(target, &chance.words());
        let Some(serving) = self.field.fleet.serving(host)? else { return Ok(None) };
        // One that dies this moment takes no question.
        Ok(serving.call(self.field.fleet.scenario().tool, &arguments).ok())
    }

    fn target(&self, chance: &mut Chance, new: bool) -> String {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let back = chance.below(RECENT) as usize;
        if !new && chance.below(2) == 0 && targets.len() > back {
            return targets[targets.len() - 1 - back].clone();
        }
        let target = (self.field.fleet.scenario().target)(targets.len() as u64 + 1);
        targets.push(target.clone());
        target
    }
}

/// Everything is whole again: open rows are found out about, and everybody asks until he is told.
fn last_calls(field: &Field, chance: &mut Chance, book: &mut Book, asked: &[String]) -> Result<()> {
    let fleet = &field.fleet;
    let mut open = asked.to_vec();
    for round in 0..LAST_ROUNDS_MAX {
        if open.is_empty() {
            break;
        }
        for host in 0..fleet.len() {
            if let Some(serving) = fleet.serving(host)?.filter(|_| round == ANEW_FROM) {
                serving.kill()?;
            }
        }
        fleet.start_all()?;
        if round > 0 {
            fleet.reconcile_at(round % fleet.len())?;
            thread::sleep(LAST_PAUSE);
        }
        let calls: Vec<_> = open.iter().enumerate().map(|(n, target)| (target, (n + round) % fleet.len())).collect();
        for some in calls.chunks(AGENTS) {
            hear(field, chance, book, some)?;
        }
        open = book.open();
    }
    Ok(())
}

fn hear(field: &Field, chance: &mut Chance, book: &mut Book, calls: &[(&String, usize)]) -> Result<()> {
    let mut waiting = Vec::new();
    for (target, host) in calls {
        let Some(serving) = field.fleet.serving(*host)? else { continue };
        let arguments = field.fleet.arguments(target, &chance.words());
        if let Ok(answer) = serving.call(field.fleet.scenario().tool, &arguments) {
            waiting.push((*target, answer));
        }
    }
    for (target, answer) in waiting {
        if let Ok(told) = answer.recv_timeout(ANSWER_WITHIN) {
            book.hear_one(&told, std::slice::from_ref(target));
        }
    }
    Ok(())
}

/// Every host shows the same rows, and tells the same; not of a control.
fn same_everywhere(field: &Field, chance: &mut Chance, book: &mut Book, asked: &[String], broken: bool) -> Result<()> {
    let fleet = &field.fleet;
    if broken {
        return Ok(());
    }
    let shown = |host| -> Result<BTreeMap<String, Held>> {
        Ok(fleet.rows_at(host)?.into_iter().map(|row| (row.label.clone(), row)).collect())
    };
    // A host may still be settling a row while it is looked at.
    let mut looks = 0;
    loop {
        let first = shown(0)?;
        let others = (1..fleet.len()).map(shown).collect::<Result<Vec<_>>>()?;
        let Some(other) = others.iter().position(|rows| *rows != first) else { break };
        looks += 1;
        ensure!(looks < LOOKS_MAX, "host {} shows other rows than host 0", other + 1);
        thread::sleep(LOOK_AGAIN);
    }
    let some: BTreeSet<&String> = (0..ASKED_EVERYWHERE).filter_map(|_| chance.one(asked)).collect();
    for target in some {
        let calls: Vec<_> = (0..fleet.len()).map(|host| (target, host)).collect();
        hear(field, chance, book, &calls)?;
    }
    Ok(())
}
