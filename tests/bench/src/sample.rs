//! Times of single calls, and figures of whole runs.

use std::time::{Duration, Instant};

/// Minimum, median and maximum of the runs' figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The greatest.
    pub max: f64,
    /// How many there were.
    pub runs: usize,
}

impl Spread {
    /// Of one figure a run; of none, not a number.
    #[must_use]
    pub fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self {
            min: at(0),
            median: f64::midpoint(at(last / 2), at(sorted.len() / 2)),
            max: at(last),
            runs: sorted.len(),
        }
    }

    /// Of the ratios of two sides that were measured in turn.
    #[must_use]
    pub fn of_ratios(pairs: &[(f64, f64)]) -> Self {
        let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
        Self::of(&ratios)
    }
}

/// Times of single calls of one run.
#[derive(Clone, Debug, Default)]
pub struct Times {
    micros: Vec<f64>,
}

impl Times {
    /// Measures as many calls.
    pub fn of(calls: usize, mut call: impl FnMut()) -> Self {
        let mut times = Self { micros: Vec::with_capacity(calls) };
        for _ in 0..calls {
            let started = Instant::now();
            call();
            times.push(started.elapsed());
        }
        times
    }

    /// Adds one call's time.
    pub fn push(&mut self, time: Duration) {
        self.micros.push(time.as_secs_f64() * 1e6);
    }

    /// Adds the times of others, as of another client of the same run.
    pub fn extend(&mut self, others: &Times) {
        self.micros.extend_from_slice(&others.micros);
    }

    /// The time, in microseconds, that this part of the calls took at most: 0.5 is the median.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index within the list"
        )]
        let index = ((sorted.len().saturating_sub(1)) as f64 * part.clamp(0.0, 1.0)).round() as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    /// Microseconds of the call in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// How many calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.micros.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.micros.is_empty()
    }
}

/// How many of something were done in a second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of calls")]
pub fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), Spread { min: 1.0, median: 2.5, max: 4.0, runs: 4 });
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn ratios_are_of_pairs_and_not_of_medians() {
        assert_eq!(Spread::of_ratios(&[(2.0, 1.0), (30.0, 10.0), (4.0, 4.0)]).median, 2.0);
    }

    #[test]
    fn a_quantile_is_one_of_the_times() {
        let mut times = Times::default();
        (1..=101).for_each(|micros| times.push(Duration::from_micros(micros)));
        assert_eq!(
            (times.median().round(), times.quantile(0.99).round(), times.quantile(1.0).round()),
            (51.0, 100.0, 101.0)
        );
    }
}
