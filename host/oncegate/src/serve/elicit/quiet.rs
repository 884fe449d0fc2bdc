//! Which questions are open, and which were put away a moment ago: an agent that repeats its call must not
//! wear a person down until they approve.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long nobody is asked again after putting a question away.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// Effects by key: asked about now (none), or quiet until then.
#[derive(Default)]
pub(super) struct Quiet(Mutex<HashMap<[u8; 32], Option<Instant>>>);

/// A question that is open for as long as this lives.
pub(super) struct Asking<'a> {
    quiet: &'a Quiet,
    key: [u8; 32],
}

impl Quiet {
    /// Opens a question, unless the same is open or was just put away.
    pub(super) fn begin(&self, key: [u8; 32]) -> Option<Asking<'_>> {
        let mut known = self.known();
        if known.contains_key(&key) {
            return None;
        }
        known.insert(key, None);
        Some(Asking { quiet: self, key })
    }

    /// Whether a question is open or was just put away.
    pub(super) fn is_quiet(&self, key: &[u8; 32]) -> bool {
        self.known().contains_key(key)
    }

    /// Notes that a question was put away.
    pub(super) fn dismissed(&self, key: [u8; 32]) {
        self.known().insert(key, Some(Instant::now() + QUIET_FOR));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<[u8; 32], Option<Instant>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        known.retain(|_, until| until.is_none_or(|until| until > now));
        known
    }
}

impl Asking<'_> {
    /// Notes that it was put away.
    pub(super) fn dismissed(&self) {
        self.quiet.dismissed(self.key);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut known = self.quiet.known();
        if known.get(&self.key) == Some(&None) {
            known.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_at_a_time_and_a_pause_after_it_was_put_away() {
        let quiet = Quiet::default();
        let asking = quiet.begin([1; 32]).unwrap();
        assert!(quiet.begin([1; 32]).is_none() && quiet.is_quiet(&[1; 32]));
        assert!(quiet.begin([2; 32]).is_some());
        drop(asking);
        assert!(!quiet.is_quiet(&[1; 32]) && !quiet.is_quiet(&[2; 32]));
        let asking = quiet.begin([1; 32]).unwrap();
        asking.dismissed();
        drop(asking);
        assert!(quiet.is_quiet(&[1; 32]) && quiet.begin([1; 32]).is_none());
        quiet.known().insert([1; 32], Some(Instant::now()));
        assert!(quiet.begin([1; 32]).is_some());
    }
}
