//! Calls that were answered `pending`: their guests run on, and the result waits for the next identical
//! call. Such a call within `retry_after` is answered from the rows; the guest does not run again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{Running, Sandbox};

/// Calls kept at once; beyond it the oldest are forgotten, whose next call runs its guest again.
const KEPT_MAX: usize = 256;
/// How long a result waits. What a read found is not told as news later than that.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The calls, by what identifies them.
#[derive(Default)]
pub(super) struct Waiting(Mutex<HashMap<Name, Kept>>);

/// What two identical calls have in common: what they are, and the policy that they run under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Name {
    call: [u8; 32],
    /// Where the policy is: nothing else is there while a call is kept that runs under it.
    policy: usize,
}

impl Name {
    pub(super) fn of(call: [u8; 32], sandbox: &Sandbox) -> Self {
        Self { call, policy: std::ptr::from_ref(sandbox.policy()).addr() }
    }
}

struct Kept {
    running: Running,
    told: Instant,
}

/// What an identical call meets.
pub(super) enum Met {
    /// The answer, without a run.
    Answer(Box<Outcome>),
    /// A guest that runs.
    Running(Running),
    /// Nothing that helps.
    Nothing,
}

impl Waiting {
    /// Looks for an identical call before.
    pub(super) async fn meet(&self, name: &Name) -> Met {
        let Some(mut kept) = self.lock().remove(name).filter(|kept| kept.told.elapsed() < KEPT_FOR) else {
            return Met::Nothing;
        };
        if !kept.running.is_over() {
            return Met::Running(kept.running);
        }
        let outcome = kept.running.outcome().await;
        if outcome.status != Status::Pending {
            return Met::Answer(Box::new(outcome));
        }
        let wait = outcome.retry_after.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.into()));
        if kept.told.elapsed() >= wait {
            return Met::Nothing;
        }
        self.lock().insert(*name, kept);
        Met::Answer(Box::new(outcome))
    }

    /// Keeps a call that was just answered `pending`.
    pub(super) fn keep(&self, name: Name, running: Running) {
        let mut kept = self.lock();
        kept.retain(|_, one| one.told.elapsed() < KEPT_FOR);
        if kept.len() >= KEPT_MAX
            && let Some(oldest) = kept.iter().min_by_key(|(_, one)| one.told).map(|(name, _)| *name)
        {
            kept.remove(&oldest);
        }
        kept.insert(name, Kept { running, told: Instant::now() });
    }

    /// Ends the guests.
    pub(super) fn stop_all(&self) {
        self.lock().values().for_each(|kept| kept.running.stop());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
