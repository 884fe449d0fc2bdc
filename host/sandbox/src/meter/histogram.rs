//! How often durations were seen, by size: two additions a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::family::{Distribution, Value};

/// Upper ends in seconds, from a commit on a fast disk to a provider's deadline.
const BOUNDS: [f64; 17] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const NANOSECONDS: f64 = 1e9;

/// See the module.
#[derive(Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let part = BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(part) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Value {
        Value::Distribution(Distribution {
            bounds: &BOUNDS,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum_ns.load(Ordering::Relaxed) as f64 / NANOSECONDS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_part_that_reaches_it() {
        let histogram = Histogram::default();
        for micros in [1, 100, 101, 30_000_000, 31_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let Value::Distribution(read) = histogram.read() else { panic!("no distribution") };
        assert_eq!((read.counts[0], read.counts[1], read.counts[16], read.counts[17]), (2, 1, 1, 1));
        assert!((read.sum - 61.000_202).abs() < 1e-9, "{}", read.sum);
    }
}
