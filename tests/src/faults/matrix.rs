//! The matrix: which cells a profile has.

use super::baselines::{self, PLAIN, PLAIN_NAME};
use super::crowd::Crowd;
use super::moments;
use super::oncegate::FORGETFUL;
use super::scenario;
use super::trouble;
use super::unit::{Part, Unit, Who};
use super::volume::Volume;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// A sample of every mode and kill point, within minutes.
    Quick,
    /// Every kill point in every mode, and at least 100,000 effects.
    Full,
}

impl Profile {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// All its units; the long ones come first, so that no lane is alone at the end.
    pub fn units(self) -> Vec<Unit> {
        let mut units: Vec<Unit> = trouble::ALL.iter().flat_map(|trouble| self.of_mode(trouble)).collect();
        units.extend(controls());
        units.sort_by_key(|unit| std::cmp::Reverse(unit.cells(0).iter().map(|cell| unit.weight(cell)).sum::<u64>()));
        units
    }

    fn of_mode(self, trouble: &'static trouble::Trouble) -> Vec<Unit> {
        let unit = |scenario, part| Unit { who: Who::Oncegate, scenario, trouble, part };
        let steps = scenario::ALL.iter().enumerate().map(|(n, scenario)| unit(*scenario, self.steps(n, trouble)));
        let mut units: Vec<Unit> = steps.collect();
        units.push(unit(scenario::many(), self.volume()));
        units.push(unit(scenario::valued(), self.crowd(trouble.name == "clean")));
        if trouble.name == "body held open after a token" {
            let count = if self == Self::Full { 60 } else { 8 };
            units.extend(scenario::ALL.iter().map(|scenario| unit(*scenario, Part::Held(count))));
        }
        units
    }

    /// The first scenario has all moments; in the sample the others share them out, mode by mode.
    fn steps(self, scenario: usize, trouble: &trouble::Trouble) -> Part {
        let mode = trouble::ALL.iter().position(|known| known.name == trouble.name).unwrap_or_default();
        let has = |n: usize| self == Self::Full || scenario == 0 || (n + mode) % 2 == scenario % 2;
        let moments =
            moments::NAMES.iter().copied().enumerate().filter(|(n, _)| has(*n)).map(|(_, name)| name).collect();
        match self {
            Self::Quick => Part::Steps { moments, some: Some(1), times: 1 },
            Self::Full => Part::Steps { moments, some: None, times: 1 },
        }
    }

    fn volume(self) -> Part {
        match self {
            Self::Quick => Part::Volume(Volume { processes: 2, effects: 40, kills: 1, every: 20 }, 1),
            Self::Full => Part::Volume(Volume { processes: 4, effects: 320, kills: 2, every: 40 }, 3),
        }
    }

    fn crowd(self, clean: bool) -> Part {
        let same = |callers, keys| Crowd { callers, keys, mixed: false, kills: 1, rounds: 1 };
        let mixed = |callers, keys| Crowd { mixed: true, ..same(callers, keys) };
        // Without any idempotency of the provider's, in volume.
        let many = Crowd { kills: 2, rounds: 6, ..same(2, 350) };
        match self {
            Self::Quick if clean => Part::Crowd(vec![same(2, 40), same(8, 4), same(64, 1), same(512, 1), mixed(8, 2)]),
            Self::Quick => Part::Crowd(vec![same(2, 10), same(8, 2), mixed(8, 1)]),
            Self::Full => Part::Crowd(vec![many, same(8, 32), same(64, 8), same(512, 1), mixed(8, 16), mixed(64, 2)]),
        }
    }
}

/// Hosts that are broken on purpose: the oracle has to see it.
fn controls() -> Vec<Unit> {
    let modes = ["timeout after commit", "429 after commit", "truncated 2xx"];
    let mut units = Vec::new();
    for who in [Who::Other(&PLAIN), Who::Forgetful] {
        for trouble in trouble::ALL.iter().filter(|trouble| modes.contains(&trouble.name)) {
            let part = Part::Steps { moments: vec!["none", "answer received"], some: Some(2), times: 1 };
            units.push(Unit { who: who.clone(), scenario: scenario::valued(), trouble, part });
        }
    }
    units
}

/// Their names: each has to show duplicates.
pub const CONTROLS: [&str; 2] = [PLAIN_NAME, FORGETFUL];

/// Kill points that every library has, whatever it stores.
const COMMON: [&str; 4] = ["none", "first byte", "answer received", "before the responded commit"];
/// Modes that tell others from us no more than those that stay.
const ONLY_OURS: [&str; 5] = ["5xx before", "429 before", "refused", "reset before", "not the provider's answer"];

/// The same small matrix for Oncegate and for others.
pub fn beside(effects: usize) -> Vec<Unit> {
    let mut units = Vec::new();
    let others = std::iter::once(&PLAIN).chain(&baselines::ALL).map(Who::Other);
    let everyone: Vec<Who> = std::iter::once(Who::Oncegate).chain(others).collect();
    for trouble in trouble::ALL.iter().filter(|trouble| !ONLY_OURS.contains(&trouble.name)) {
        for who in &everyone {
            for scenario in scenario::COMMON {
                let part = Part::Steps { moments: COMMON.to_vec(), some: Some(effects), times: 1 };
                units.push(Unit { who: who.clone(), scenario, trouble, part });
            }
        }
    }
    units
}
