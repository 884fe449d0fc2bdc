//! A part of the matrix that shares one ledger and one provider, and runs beside other parts.

use anyhow::{Context, Result};

use super::baselines::Library;
use super::chance::Chance;
use super::crowd::{self, Crowd};
use super::held;
use super::moments::{self, Moment};
use super::oncegate::{FORGETFUL, Oncegate};
use super::row::{Cell, Row, Tally};
use super::scenario::Scenario;
use super::steps::{self, Targets};
use super::system::System;
use super::trouble::Trouble;
use super::volume::{self, Volume};
use crate::killat::KillPoint;

/// How a unit drives its system.
#[derive(Clone, Debug)]
pub enum Part {
    /// Kill points of single calls.
    Steps {
        /// The moments, by name.
        moments: Vec<&'static str>,
        /// So many points of each by chance; none is every point, so many times.
        some: Option<usize>,
        /// Times that every point is tried.
        times: usize,
    },
    /// Many effects a call; so many waves.
    Volume(Volume, usize),
    /// Many callers on one key.
    Crowd(Vec<Crowd>),
    /// So many answers that are held open.
    Held(usize),
}

/// Who is driven.
#[derive(Clone, Debug)]
pub enum Who {
    /// The built program.
    Oncegate,
    /// The same, with its ledger thrown away before each call: a control.
    Forgetful,
    /// A library or a plain tool.
    Other(&'static Library),
}

/// One part of the matrix.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Who is driven.
    pub who: Who,
    /// With what.
    pub scenario: &'static Scenario,
    /// Against which trouble.
    pub trouble: &'static Trouble,
    /// And how.
    pub part: Part,
}

/// A volume's or a crowd's kill point.
const RANDOM: &str = "at random";
/// That of an answer that is held open.
const HELD: &str = "token received, body open";

impl Unit {
    /// The cells it fills.
    pub fn cells(&self, seed: u64) -> Vec<Cell> {
        let cell = |kill_point: &str, callers: u32, values: &str| Cell {
            system: self.system().0.to_owned(),
            ledger: self.system().1.to_owned(),
            scenario: self.scenario.name.to_owned(),
            mode: self.trouble.name.to_owned(),
            kill_point: kill_point.to_owned(),
            callers,
            values: values.to_owned(),
            seed,
        };
        match &self.part {
            Part::Steps { moments, .. } => moments.iter().map(|moment| cell(moment, 1, "same")).collect(),
            Part::Volume(..) => vec![cell(RANDOM, 1, "same")],
            Part::Held(_) => vec![cell(HELD, 1, "same")],
            Part::Crowd(crowds) => crowds
                .iter()
                .map(|crowd| cell(RANDOM, crowd.callers, if crowd.mixed { "mixed" } else { "same" }))
                .collect(),
        }
    }

    fn system(&self) -> (&'static str, &'static str) {
        match &self.who {
            Who::Oncegate => ("oncegate", "redb"),
            Who::Forgetful => (FORGETFUL, "redb"),
            Who::Other(library) => (library.name, library.ledger),
        }
    }

    /// About how long it takes, in milliseconds of a debug build.
    pub fn weight(&self, cell: &Cell) -> u64 {
        match &self.part {
            Part::Steps { some, times, .. } => {
                let points = some.unwrap_or(if cell.kill_point == "none" { 1 } else { 5 * times });
                let each = if cell.kill_point.starts_with("SIGSTOP") { 1_800 } else { 800 };
                points as u64 * each
            }
            Part::Volume(volume, waves) => (volume.processes * volume.effects * waves) as u64 * 20,
            Part::Crowd(crowds) => {
                let crowd = crowds.iter().find(|crowd| crowd.callers == cell.callers);
                let keys = crowd.map_or(1, |crowd| crowd.keys * crowd.rounds * (crowd.kills + 2));
                3_000 + u64::from(cell.callers) * keys as u64 * 10
            }
            Part::Held(count) => *count as u64 * 1_500,
        }
    }

    /// Runs the cells that are not done yet, and reports each.
    ///
    /// # Errors
    /// A part of the machinery failed; what a system said is never one.
    pub fn run(&self, seed: u64, is_done: &dyn Fn(&Cell) -> bool, report: &dyn Fn(Row) -> Result<()>) -> Result<()> {
        let cells: Vec<Cell> = self.cells(seed).into_iter().filter(|cell| !is_done(cell)).collect();
        if cells.is_empty() {
            return Ok(());
        }
        let system: Box<dyn System> = match &self.who {
            Who::Oncegate => Box::new(Oncegate::set(self.scenario, self.trouble, false)?),
            Who::Forgetful => Box::new(Oncegate::set(self.scenario, self.trouble, true)?),
            Who::Other(library) => Box::new(library.set(self.scenario)?),
        };
        let mut targets = Targets::of(self.scenario);
        let moments = self.moments(&*system, &mut targets)?;
        for cell in cells {
            let mut chance = Chance::of(seed, &cell.id());
            let before = system.provider().met()?;
            let tally = self.cell(&*system, &cell, &moments, &mut chance, &mut targets);
            let mut tally = tally.with_context(|| format!("the cell {}", cell.id()))?;
            tally.met = system.provider().met()? - before;
            report(Row { cell, tally })?;
        }
        Ok(())
    }

    fn moments(&self, system: &dyn System, targets: &mut Targets) -> Result<Vec<Moment>> {
        if !matches!(self.part, Part::Steps { .. }) {
            return Ok(Vec::new());
        }
        let calls = moments::watch(system, &targets.take(1).concat())?;
        let provider = system.provider();
        let port = provider.port();
        moments::moments(&calls, &format!("port={port}"))
    }

    fn cell(
        &self,
        system: &dyn System,
        cell: &Cell,
        moments: &[Moment],
        chance: &mut Chance,
        targets: &mut Targets,
    ) -> Result<Tally> {
        match &self.part {
            Part::Steps { some, times, .. } => {
                let moment = moments.iter().find(|moment| moment.name == cell.kill_point).context("no such moment")?;
                let points = points(moment, *some, *times, chance);
                steps::run(system, self.trouble, moment, &points, chance, targets)
            }
            Part::Volume(volume, waves) => {
                let mut tally = Tally::default();
                for _ in 0..*waves {
                    tally.add(volume::run(system, self.trouble, *volume, chance, targets)?);
                }
                Ok(tally)
            }
            Part::Crowd(crowds) => {
                let mixed = cell.values == "mixed";
                let fits = |crowd: &&Crowd| crowd.callers == cell.callers && crowd.mixed == mixed;
                let crowd = crowds.iter().find(fits).context("no such crowd")?;
                let mut tally = Tally::default();
                for _ in 0..crowd.rounds {
                    tally.add(crowd::run(system, self.trouble, *crowd, chance, targets)?);
                }
                Ok(tally)
            }
            Part::Held(count) => held::run(system, self.trouble, *count, chance, targets),
        }
    }
}

/// The points of a cell; none is a call that nothing cuts off.
fn points(moment: &Moment, some: Option<usize>, times: usize, chance: &mut Chance) -> Vec<Option<KillPoint>> {
    if moment.points.is_empty() {
        return vec![None; some.unwrap_or(times)];
    }
    match some {
        Some(count) => (0..count).map(|_| chance.one(&moment.points).copied()).collect(),
        None => (0..times).flat_map(|_| moment.points.iter().copied().map(Some)).collect(),
    }
}
