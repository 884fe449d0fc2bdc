//! Who moves the head marker, right behind the commits, and the thread that makes it durable.
//!
//! The marker is *written* before an append is acknowledged, and synced within [`SYNC_WITHIN`]. It is there for
//! whoever opens a ledger that was put back: a process that ends loses nothing of what it wrote. A machine that
//! loses its power may lose the marks of that time, and then has the ledger itself, which never lags behind them;
//! only a copy of the ledger from those very milliseconds, put back before the ledger was opened again, would pass.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::marker::{Mark, Marker};
use crate::LedgerError;

/// How long a mark may be written and not durable: it costs a busy disk one sync in some hundred.
const SYNC_WITHIN: Duration = Duration::from_millis(50);
/// How often a marker that could not be written is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// A marker's file, as far as it is needed here.
trait Slots: Send + Sync {
    fn write(&self, mark: Mark, round: u64) -> Result<(), LedgerError>;
    fn sync(&self) -> Result<(), LedgerError>;
}

impl Slots for Marker {
    fn write(&self, mark: Mark, round: u64) -> Result<(), LedgerError> {
        Marker::write(self, mark, round)
    }

    fn sync(&self) -> Result<(), LedgerError> {
        Marker::sync(self)
    }
}

/// Where marks are made.
#[derive(Clone)]
pub(super) struct Marks {
    shared: Arc<Shared>,
}

/// The thread; dropping it makes the marker durable, and ends.
pub(super) struct Marking {
    marks: Marks,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    slots: Box<dyn Slots>,
    state: Mutex<State>,
    /// For the thread: there is something to make durable, or it is wanted at once.
    due: Condvar,
    /// For those who wait until something is written, or durable.
    settled: Condvar,
}

struct State {
    /// The newest mark that was asked for, as long as it is not written.
    owed: Option<Mark>,
    /// The last that was written.
    last: Option<Mark>,
    /// Which slot is written next: one for all that is written between two syncs.
    round: u64,
    /// Somebody writes into that slot.
    writing: bool,
    /// The last sync failed: until one succeeds no slot is given up.
    unsure: bool,
    /// The record that the marker names, and the first one that it does not name durably yet and must.
    named: u64,
    unsynced: Option<u64>,
    /// Why the last try failed; none once one succeeded.
    failed: Option<LedgerError>,
    /// Somebody waits until it is durable, or it is over.
    hurry: bool,
    stopping: bool,
}

impl Marking {
    /// `named` is the record that the marker names now.
    pub(super) fn start(named: u64, marker: Marker) -> Result<Marking, LedgerError> {
        let round = marker.next_round();
        Marking::over(named, round, Box::new(marker))
    }

    fn over(named: u64, round: u64, slots: Box<dyn Slots>) -> Result<Marking, LedgerError> {
        let state = State {
            owed: None,
            last: None,
            round,
            writing: false,
            unsure: false,
            named,
            unsynced: None,
            failed: None,
            hurry: false,
            stopping: false,
        };
        let shared = Arc::new(Shared { slots, state: Mutex::new(state), due: Condvar::new(), settled: Condvar::new() });
        let marks = Marks { shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new()
            .name("oncegate-ledger-marker".to_owned())
            .spawn(move || shared.run())
            .map_err(|error| LedgerError::io("starting the marker's thread", &error))?;
        Ok(Marking { marks, thread: Some(thread) })
    }

    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Drop for Marking {
    fn drop(&mut self) {
        self.marks.shared.state().stopping = true;
        self.marks.shared.due.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Marks {
    /// Makes the marker name a record that is durable. What becomes of it is asked with [`Marks::marked`].
    pub(super) fn mark(&self, mark: Mark) {
        let mut state = self.shared.state();
        let first = state.unsynced.is_none();
        state.unsynced.get_or_insert(mark.seq);
        state.owed = Some(mark);
        self.shared.write_owed(state);
        if first {
            self.shared.due.notify_one();
        }
    }

    /// Whether the marker names every record that it was to name.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn marked(&self) -> Result<(), LedgerError> {
        self.failing().map_or(Ok(()), Err)
    }

    /// Waits until what it names is durable.
    pub(super) fn wait(&self) -> Result<(), LedgerError> {
        self.hurry();
        let state = self.shared.state();
        let open = |state: &mut State| state.unsynced.is_some() && state.failed.is_none();
        let state = self.shared.settled.wait_while(state, open).unwrap_or_else(PoisonError::into_inner);
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Makes it durable soon, without waiting.
    pub(super) fn hurry(&self) {
        let mut state = self.shared.state();
        state.hurry = state.unsynced.is_some();
        drop(state);
        self.shared.due.notify_one();
    }

    /// Why the marker cannot be moved now: what needs it is refused.
    pub(super) fn failing(&self) -> Option<LedgerError> {
        self.shared.state().failed.clone()
    }

    /// The record that the marker names.
    pub(super) fn named(&self) -> u64 {
        self.shared.state().named
    }

    /// The first record that it does not durably name yet and must.
    pub(super) fn unmarked(&self) -> Option<u64> {
        self.shared.state().unsynced
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the newest mark that is owed; one at a time, and never into a slot that is being synced.
    fn write_owed(&self, state: MutexGuard<'_, State>) {
        let mut state = self.when_unwritten(state);
        let Some(mark) = state.owed.take() else { return };
        state.writing = true;
        let round = state.round;
        drop(state);
        let outcome = self.slots.write(mark, round);
        let mut state = self.state();
        state.writing = false;
        match outcome {
            Ok(()) => (state.named, state.last, state.failed) = (mark.seq, Some(mark), None),
            Err(why) => state.fails(mark, why),
        }
        drop(state);
        self.settled.notify_all();
    }

    fn when_unwritten<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.settled.wait_while(state, |state| state.writing).unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(state) = self.next() {
            let stopping = state.stopping;
            self.write_owed(state);
            self.sync();
            if stopping && self.state().failed.is_some() {
                return;
            }
        }
    }

    /// Waits until there is something to make durable, and after a failure a while; none when it is stopping and
    /// nothing is left.
    fn next(&self) -> Option<MutexGuard<'_, State>> {
        let idle = |state: &mut State| state.unsynced.is_none() && !state.stopping;
        let state = self.due.wait_while(self.state(), idle).unwrap_or_else(PoisonError::into_inner);
        let (failed, pause) = match &state.failed {
            Some(_) => (true, RETRY_EVERY),
            None => (false, SYNC_WITHIN),
        };
        let unhurried = |state: &mut State| !state.stopping && (failed || !state.hurry);
        let waited = self.due.wait_timeout_while(state, pause, unhurried);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.unsynced.is_some().then_some(state)
    }

    /// Makes what was written durable. What is written meanwhile takes another slot.
    fn sync(&self) {
        let mut state = self.when_unwritten(self.state());
        if state.failed.is_some() {
            return;
        }
        let named = state.named;
        state.round += u64::from(!state.unsure);
        drop(state);
        let outcome = self.slots.sync();
        let mut state = self.state();
        match outcome {
            Ok(()) => {
                state.round += u64::from(std::mem::take(&mut state.unsure));
                state.unsynced = (state.named > named || state.owed.is_some()).then_some(named + 1);
                state.hurry &= state.unsynced.is_some();
            }
            Err(why) => {
                state.unsure = true;
                // What was written may be gone: it is written again.
                if let Some(last) = state.last {
                    state.fails(last, why);
                }
            }
        }
        drop(state);
        self.settled.notify_all();
    }
}

impl State {
    fn fails(&mut self, mark: Mark, why: LedgerError) {
        tracing::error!(error = %why, "the head marker could not be moved; nothing is sent until it can");
        self.owed.get_or_insert(mark);
        self.failed = Some(why);
    }
}
#[cfg(test)]
mod tests;
