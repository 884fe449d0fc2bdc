//! What is counted: calls, commits, what providers take, and who waits.
//!
//! Counters only: nothing here decides anything, waits for anything or knows who reads it. What is named is what a
//! contract declares, a state or a code; never a value, a key, a tenant or a word of a guest, a model or a provider.

pub mod census;
pub mod family;
mod histogram;
mod ledger;
mod named;
pub mod spans;
mod words;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::outcome::{Code, Status};
use census::Counted;
use family::{Family, Kind, Series};
use histogram::Histogram;
use named::Named;

pub(crate) use ledger::measured;
pub(crate) use words::{Asked, ProviderEnd};
use words::{CALL_ENDS, CODES, COMMIT_ENDS, CommitEnd};

/// How a call of a tool was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// With an outcome.
    Outcome(Status),
    /// With a task, which is asked for later.
    Task,
    /// With a question to the person at the client.
    InputRequired,
}

impl CallEnd {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        words::call_end(self)
    }
}

/// The figures of one process.
#[derive(Default)]
pub struct Meter {
    calls: Named<Calls>,
    refusals: [AtomicU64; CODES.len()],
    open: AtomicI64,
    attached: AtomicI64,
    attempts: AtomicI64,
    commits: Commits,
    providers: [Named<Provider>; Asked::ALL.len()],
    counted: Mutex<Counted>,
    frozen: Mutex<Vec<[u8; 32]>>,
}

#[derive(Default)]
struct Calls {
    ends: [AtomicU64; CALL_ENDS.len()],
    took: Histogram,
}

#[derive(Default)]
struct Commits {
    ends: [AtomicU64; COMMIT_ENDS.len()],
    took: Histogram,
    waiting: AtomicI64,
}

#[derive(Default)]
struct Provider {
    ends: [AtomicU64; ProviderEnd::ALL.len()],
    took: Histogram,
}

/// Frozen keys that are remembered until the next census has looked at them.
const FROZEN_REMEMBERED_MAX: usize = 10_000;

/// Counts one more for as long as it lives.
pub struct Here {
    meter: Arc<Meter>,
    of: fn(&Meter) -> &AtomicI64,
}

impl Here {
    fn new(meter: &Arc<Meter>, of: fn(&Meter) -> &AtomicI64) -> Self {
        of(meter).fetch_add(1, Ordering::Relaxed);
        Self { meter: Arc::clone(meter), of }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        (self.of)(&self.meter).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Meter {
    /// A call of a tool was answered. The tool's name is one that is served.
    pub fn called(&self, tool: &str, end: CallEnd, took: Duration) {
        let calls = self.calls.of(tool);
        add(&calls.ends, CALL_ENDS.iter().position(|one| *one == end));
        calls.took.observe(took);
    }

    /// A call, or an effect of one, was refused with this code.
    pub fn refused(&self, code: Code) {
        add(&self.refusals, CODES.iter().position(|one| *one == code));
    }

    /// Somebody waits for what another call does.
    #[must_use]
    pub fn attached(self: &Arc<Self>) -> Here {
        Here::new(self, |meter| &meter.attached)
    }

    /// A guest runs.
    pub(crate) fn open(self: &Arc<Self>) -> Here {
        Here::new(self, |meter| &meter.open)
    }

    /// An attempt is under way, from before its dispatch is committed to after its answer is judged.
    pub(crate) fn attempt(self: &Arc<Self>) -> Here {
        Here::new(self, |meter| &meter.attempts)
    }

    /// A provider was asked; none of the time counts in which nothing had been sent.
    pub(crate) fn provider(&self, asked: Asked, operation: &str, end: ProviderEnd, took: Option<Duration>) {
        let provider = self.providers[asked as usize].of(operation);
        add(&provider.ends, Some(end as usize));
        if let Some(took) = took {
            provider.took.observe(took);
        }
    }

    /// A frozen row was met.
    pub(crate) fn saw_frozen(&self, key: [u8; 32]) {
        let mut frozen = self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if frozen.len() < FROZEN_REMEMBERED_MAX && !frozen.contains(&key) {
            frozen.push(key);
        }
    }

    /// The frozen rows that were met since this was asked last.
    fn take_frozen(&self) -> Vec<[u8; 32]> {
        std::mem::take(&mut *self.frozen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn committed(&self, end: CommitEnd, took: Option<Duration>) {
        add(&self.commits.ends, Some(end as usize));
        if let Some(took) = took {
            self.commits.took.observe(took);
        }
    }

    /// All figures as they are now.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let mut all = self.of_calls();
        all.extend(self.of_commits());
        all.extend(self.of_providers());
        all.extend(self.counted.lock().unwrap_or_else(PoisonError::into_inner).families());
        all
    }

    fn of_calls(&self) -> Vec<Family> {
        let calls = self.calls.all();
        let (mut ends, mut took) = (Vec::new(), Vec::new());
        for (tool, calls) in &calls {
            let ended = CALL_ENDS.iter().zip(&calls.ends);
            ends.extend(ended.map(|(end, count)| Series::count(&[("tool", tool), ("status", end.word())], count)));
            took.push(Series::of(&[("tool", tool)], calls.took.read()));
        }
        let refused = CODES.iter().zip(&self.refusals);
        let refused = refused.map(|(code, count)| Series::count(&[("code", words::code(*code))], count)).collect();
        vec![
            Family::new("oncegate_calls_total", "Calls of tools that were answered, by status.", Kind::Counter, ends),
            Family::new("oncegate_call_duration_seconds", "Until a call was answered.", Kind::Histogram, took),
            Family::new("oncegate_refusals_total", "Refusals that callers were told, by code.", Kind::Counter, refused),
            Family::gauge("oncegate_calls_open", "Calls whose guest runs, or waits for a provider.", &self.open),
            Family::gauge("oncegate_callers_attached", "Callers that wait for what another call does.", &self.attached),
            Family::gauge("oncegate_attempts_open", "Attempts to cause an effect that have not ended.", &self.attempts),
        ]
    }

    fn of_commits(&self) -> Vec<Family> {
        let Commits { ends, took, waiting } = &self.commits;
        let ended = COMMIT_ENDS.iter().zip(ends);
        let ends = ended.map(|(end, count)| Series::count(&[("result", words::commit_end(*end))], count)).collect();
        let (took, help) = (
            vec![Series::of(&[], took.read())],
            "From handing events in until they are durable, where somebody waits for that.",
        );
        vec![
            Family::new("oncegate_ledger_commits_total", "Appends to the ledger, by result.", Kind::Counter, ends),
            Family::new("oncegate_ledger_commit_duration_seconds", help, Kind::Histogram, took),
            Family::gauge("oncegate_ledger_queue_depth", "Appends that are handed in and not durable yet.", waiting),
        ]
    }

    fn of_providers(&self) -> Vec<Family> {
        let (mut ends, mut took) = (Vec::new(), Vec::new());
        for asked in Asked::ALL {
            for (operation, provider) in self.providers[asked as usize].all() {
                let names = [("kind", asked.word()), ("operation", operation.as_str())];
                for (end, count) in ProviderEnd::ALL.iter().zip(&provider.ends) {
                    ends.push(Series::count(&[names[0], names[1], ("outcome", end.word())], count));
                }
                took.push(Series::of(&names, provider.took.read()));
            }
        }
        let help = "From the first byte of an effect sent, or of a lookup's connecting, to the end of the answer.";
        vec![
            Family::new("oncegate_provider_requests_total", "Requests to providers, by outcome.", Kind::Counter, ends),
            Family::new("oncegate_provider_request_duration_seconds", help, Kind::Histogram, took),
        ]
    }
}

fn add(counts: &[AtomicU64], at: Option<usize>) {
    if let Some(count) = at.and_then(|at| counts.get(at)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(meter: &Meter, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let families = meter.families();
        let family = families.iter().find(|family| family.name == name).unwrap();
        let is = |series: &&Series| {
            series.labels.iter().map(|(name, value)| (*name, value.as_str())).eq(labels.iter().copied())
        };
        family.series.iter().find(is).map(|series| series.value.total())
    }

    #[test]
    fn what_is_counted_is_read() {
        let meter = Arc::new(Meter::default());
        meter.called("pay", CallEnd::Outcome(Status::Refused), Duration::from_millis(3));
        meter.refused(Code::Revoked);
        meter.provider(Asked::Effect, "create", ProviderEnd::NotSent, None);
        let here = meter.attached();
        assert_eq!(value(&meter, "oncegate_calls_total", &[("tool", "pay"), ("status", "refused")]), Some(1.0));
        assert_eq!(value(&meter, "oncegate_calls_total", &[("tool", "pay"), ("status", "done")]), Some(0.0));
        assert_eq!(value(&meter, "oncegate_call_duration_seconds", &[("tool", "pay")]), Some(1.0));
        assert_eq!(value(&meter, "oncegate_refusals_total", &[("code", "revoked")]), Some(1.0));
        let create = [("kind", "effect"), ("operation", "create")];
        assert_eq!(value(&meter, "oncegate_provider_request_duration_seconds", &create), Some(0.0));
        assert_eq!(value(&meter, "oncegate_callers_attached", &[]), Some(1.0));
        drop(here);
        assert_eq!(value(&meter, "oncegate_callers_attached", &[]), Some(0.0));
    }

    #[test]
    fn a_frozen_row_is_told_once() {
        let meter = Meter::default();
        meter.saw_frozen([1; 32]);
        meter.saw_frozen([1; 32]);
        assert_eq!((meter.take_frozen().len(), meter.take_frozen().len()), (1, 0));
    }
}
