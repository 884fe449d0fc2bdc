//! The fault campaign on PostgreSQL: hosts that share one ledger, while hosts, database and network go wrong.
//!
//! A [`fault::Fault`] says what goes wrong; a [`field::Field`] is where: servers ([`node`]), what stands before them
//! ([`proxy`], [`net`]) and hosts ([`fleet`], [`serving`]). A [`cell::Trial`] lets agents ask while it does, and has
//! the provider's count judge.

pub mod cell;
pub mod fault;
pub mod field;
pub mod fleet;
pub mod net;
pub mod node;
pub mod proxy;
pub mod serving;
pub mod table;

use std::time::Duration;

use cell::Trial;
use fault::Fault;
use proxy::Spoil;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Every fault once, within minutes.
    Quick,
    /// Every fault with 1, 3 and 8 hosts, for longer.
    Full,
}

/// Hosts of a fleet.
const HOSTS: [usize; 3] = [1, 3, 8];
/// Things raced for in the sample.
const RACES: u64 = 60;

impl Profile {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Its cells; the controls among them. `races` replaces how many are raced for by two hosts.
    #[must_use]
    pub fn trials(self, races: Option<u64>) -> Vec<Trial> {
        let lasts = Duration::from_secs(if self == Self::Full { 15 } else { 4 });
        let trial = |fault, hosts| {
            let races = (fault == Fault::Races).then_some(if hosts == 2 { races.unwrap_or(RACES) } else { RACES });
            Trial { fault, hosts, lasts, races }
        };
        let full = Fault::ALL.iter().flat_map(|fault| HOSTS.map(|hosts| trial(*fault, hosts)));
        let mut trials: Vec<Trial> = match self {
            Self::Full => full.collect(),
            Self::Quick => full.filter(|trial| is_sampled(trial.fault, trial.hosts)).collect(),
        };
        trials.push(trial(Fault::Races, 2));
        trials.extend(Fault::CONTROLS.map(|fault| trial(fault, 3)));
        trials
    }
}

/// Each fault once, those that most depend on their number with others too.
fn is_sampled(fault: Fault, hosts: usize) -> bool {
    match fault {
        Fault::Races | Fault::Connections(Spoil::Cut) | Fault::ClocksApart => hosts == 3,
        Fault::Everything => hosts == 8,
        Fault::HostSilent | Fault::Connections(_) => hosts == 1,
        Fault::HostsKilled | Fault::DatabaseKilled => hosts != 3,
        _ => hosts == 3,
    }
}
