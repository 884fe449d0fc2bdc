//! One cell of the table: what was driven, what was counted.

use serde::{Deserialize, Serialize};

/// Which cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Who keeps the promise.
    pub system: String,
    /// Where it keeps its rows.
    pub ledger: String,
    /// The tool and its domain.
    pub scenario: String,
    /// How the provider goes wrong.
    pub mode: String,
    /// Where a process ends.
    pub kill_point: String,
    /// Callers on one key.
    pub callers: u32,
    /// `same`, or `mixed` when callers disagree about a bound value.
    pub values: String,
    /// What decides all chances of the cell, together with its name.
    pub seed: u64,
}

impl Cell {
    /// The cell's name: what a seed is mixed with, and what a resumed run knows it by.
    pub fn id(&self) -> String {
        let Self { system, ledger, scenario, mode, kill_point, callers, values, seed } = self;
        format!("{system}/{ledger}/{scenario}/{mode}/{kill_point}/{callers}/{values}/{seed}")
    }
}

/// What was counted in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Effects that were asked for: the denominator.
    pub effects: u64,
    /// Processes that were killed, or stopped and woken.
    pub cut_off: u64,
    /// Requests that met the provider's mode.
    pub met: u64,
    /// Second effects at the provider.
    pub duplicates: u64,
    /// Receipts that were told, or received and older than the sync bound, and are not in the ledger.
    pub lost: u64,
    /// Successes told without that effect's own receipt.
    pub wrong: u64,
    /// Rows that neither settled nor ask for a person, after the last reconcile and call.
    pub stuck: u64,
    /// Refused, or sent to a person, though nothing had happened or the answer was known.
    pub over_refusals: u64,
    /// Effects that a person has to decide about.
    pub decisions: u64,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.effects += other.effects;
        self.cut_off += other.cut_off;
        self.met += other.met;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.stuck += other.stuck;
        self.over_refusals += other.over_refusals;
        self.decisions += other.decisions;
    }

    /// Nothing that must never be.
    pub fn is_right(&self) -> bool {
        self.duplicates + self.lost + self.wrong + self.stuck == 0
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// What was counted.
    #[serde(flatten)]
    pub tally: Tally,
}
