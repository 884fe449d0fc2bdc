//! A row of the table: a figure, what it stands beside, its goal.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::Spread;

/// What a row's figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// More than this.
    Above(f64),
    /// It is shown; no goal was set.
    None,
}

impl Goal {
    /// Whether this figure meets it.
    #[must_use]
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
            Self::Above(less) => figure > less,
            Self::None => true,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(to, "≤ {most}"),
            Self::AtLeast(least) => write!(to, "≥ {least}"),
            Self::Above(less) => write!(to, "> {less}"),
            Self::None => write!(to, "–"),
        }
    }
}

/// One line of the table and of `rows.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The part that measured it.
    pub part: String,
    /// What was measured.
    pub name: String,
    /// What it stands beside.
    pub against: String,
    /// The median of the runs' figures: a ratio, or where the goal is not one, a figure in `unit`.
    pub ratio: f64,
    /// The least and the greatest of the runs' figures.
    pub min: f64,
    /// See `min`.
    pub max: f64,
    /// `×` for a ratio, else the unit.
    pub unit: String,
    /// What it must be.
    pub goal: Goal,
    /// Whether the median is that.
    pub met: bool,
    /// How often both sides were measured, in turn.
    pub runs: usize,
    /// Both sides in absolute figures, for people; they hold for one machine.
    pub detail: String,
}

impl Row {
    /// A row of figures, one from each run.
    #[must_use]
    pub fn new(part: &str, name: &str, against: &str, goal: Goal, figures: Spread) -> Self {
        Self {
            part: part.to_owned(),
            name: name.to_owned(),
            against: against.to_owned(),
            ratio: figures.median,
            min: figures.min,
            max: figures.max,
            unit: "×".to_owned(),
            goal,
            met: goal.is_met(figures.median),
            runs: figures.runs,
            detail: String::new(),
        }
    }

    /// The same with a figure that is no ratio.
    #[must_use]
    pub fn in_unit(mut self, unit: &str) -> Self {
        unit.clone_into(&mut self.unit);
        self
    }

    /// The same with both sides in absolute figures.
    #[must_use]
    pub fn with(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_meets_the_goal_or_does_not() {
        let spread = Spread::of(&[1.0, 1.4, 1.2]);
        assert!(Row::new("p", "a", "b", Goal::AtMost(1.3), spread).met);
        assert!(!Row::new("p", "a", "b", Goal::AtLeast(1.3), spread).met);
        assert!(!Row::new("p", "a", "b", Goal::Above(1.2), spread).met);
    }

    #[test]
    fn a_row_is_read_back() {
        let row = Row::new("p", "a", "b", Goal::AtMost(64.0), Spread::of(&[3.0])).in_unit("KiB").with("12 beside 4");
        let text = serde_json::to_string(&row).unwrap();
        let back: Row = serde_json::from_str(&text).unwrap();
        assert_eq!((back.unit.as_str(), back.goal, back.met), ("KiB", Goal::AtMost(64.0), true));
    }
}
