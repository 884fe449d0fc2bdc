//! A figure with all its series at one time, for whoever passes it on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What a figure's numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often which values were seen.
    Histogram,
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name, with its unit and kind at the end, as Prometheus writes them.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What its numbers mean.
    pub kind: Kind,
    /// One for each combination of labels.
    pub series: Vec<Series>,
}

/// One number or distribution, and what tells it from the others of its figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// What was measured.
    pub value: Value,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// Many values.
    Distribution(Distribution),
}

/// How often values were seen, by size.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The upper end of each part but the last, which has none.
    pub bounds: &'static [f64],
    /// How many values were in each part.
    pub counts: Vec<u64>,
    /// Of all values.
    pub sum: f64,
}

impl Family {
    /// A figure.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str, kind: Kind, series: Vec<Series>) -> Self {
        Self { name, help, kind, series }
    }

    /// One number that goes up and down.
    #[must_use]
    pub fn number(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(name, help, Kind::Gauge, vec![Series::of(&[], Value::Number(value))])
    }

    pub(super) fn gauge(name: &'static str, help: &'static str, value: &AtomicI64) -> Self {
        Self::number(name, help, value.load(Ordering::Relaxed) as f64)
    }
}

impl Series {
    /// Of a value.
    #[must_use]
    pub fn of(labels: &[(&'static str, &str)], value: Value) -> Self {
        Self { labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), value }
    }

    /// Of a counter.
    #[must_use]
    pub fn count(labels: &[(&'static str, &str)], count: &AtomicU64) -> Self {
        Self::of(labels, Value::Number(count.load(Ordering::Relaxed) as f64))
    }
}

impl Value {
    /// The number, or how many values there were.
    #[must_use]
    pub fn total(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Distribution(distribution) => distribution.counts.iter().sum::<u64>() as f64,
        }
    }
}
