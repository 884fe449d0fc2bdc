//! What is known of a server by those who watch it: written by the server, read by their thread, and waited for by
//! neither.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oncegate_sandbox::meter::Meter;
use tokio_util::sync::CancellationToken;

/// What a check that found nothing wrong says.
pub(crate) const GOOD: &str = "ok";
/// How long an event loop may be silent: guests and compiling never hold it, a machine that is overloaded may.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How old what is known of the ledger may be: some tries of asking it.
const STALE_AFTER: Duration = Duration::from_secs(20);
const STARTING: &str = "starting";

/// See the module.
pub(crate) struct Board {
    begun: Instant,
    /// Seconds since the Unix epoch at which the process began.
    pub(super) started: f64,
    is_read: AtomicBool,
    server: OnceLock<Server>,
    /// Milliseconds after the beginning at which the event loop was last seen to turn.
    beat: AtomicU64,
    found: Mutex<Option<Found>>,
    policy_is_refused: AtomicBool,
    pub(super) exports: Exports,
}

/// What it has done to be rid of traces and metrics.
#[derive(Default)]
pub(super) struct Exports {
    pub(super) spans_dropped: AtomicU64,
    pub(super) spans_sent: AtomicU64,
    pub(super) spans_failed: AtomicU64,
    pub(super) metrics_sent: AtomicU64,
    pub(super) metrics_failed: AtomicU64,
}

struct Server {
    meter: Arc<Meter>,
    closing: CancellationToken,
    waiting: Box<dyn Fn() -> usize + Send + Sync>,
}

#[derive(Clone, Copy)]
struct Found {
    ledger: &'static str,
    components: &'static str,
    at: Instant,
}

/// What was checked, each with a word for what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checks(pub(super) [(&'static str, &'static str); 5]);

impl Checks {
    pub(super) fn are_good(&self) -> bool {
        self.0.iter().all(|(_, word)| *word == GOOD)
    }
}

impl Default for Board {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self {
            begun: Instant::now(),
            started,
            is_read: AtomicBool::new(false),
            server: OnceLock::new(),
            beat: AtomicU64::new(0),
            found: Mutex::new(None),
            policy_is_refused: AtomicBool::new(false),
            exports: Exports::default(),
        }
    }
}

impl Board {
    pub(super) fn read(&self, is_read: bool) {
        self.is_read.store(is_read, Ordering::Relaxed);
    }

    /// Whether anybody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// The server takes calls from now on.
    pub(crate) fn serves(
        &self,
        meter: Arc<Meter>,
        closing: CancellationToken,
        waiting: Box<dyn Fn() -> usize + Send + Sync>,
    ) {
        // There is one server in a process.
        let _ = self.server.set(Server { meter, closing, waiting });
    }

    /// The event loop turns.
    pub(crate) fn beats(&self) {
        self.beat.store(self.elapsed_ms().max(1), Ordering::Relaxed);
    }

    /// What was found of the ledger and the components.
    pub(crate) fn found(&self, ledger: &'static str, components: &'static str) {
        let found = Found { ledger, components, at: Instant::now() };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Whether the policy's file is another than the policy that holds.
    pub(crate) fn policy_is_refused(&self, is_refused: bool) {
        self.policy_is_refused.store(is_refused, Ordering::Relaxed);
    }

    pub(super) fn refuses_policy(&self) -> bool {
        self.policy_is_refused.load(Ordering::Relaxed)
    }

    pub(super) fn meter(&self) -> Option<&Meter> {
        self.server.get().map(|server| &*server.meter)
    }

    pub(super) fn waiting(&self) -> usize {
        self.server.get().map_or(0, |server| (server.waiting)())
    }

    /// Whether the event loop turns. While it starts it may compile and is not asked.
    pub(super) fn is_alive(&self) -> bool {
        let beat = self.beat.load(Ordering::Relaxed);
        beat == 0 || u128::from(self.elapsed_ms().saturating_sub(beat)) <= SILENT_MAX.as_millis()
    }

    /// Whether calls should come here, and what is wrong if not.
    pub(super) fn checks(&self) -> Checks {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledger, components) = match found {
            None => (STARTING, STARTING),
            Some(found) if found.at.elapsed() > STALE_AFTER => ("it does not answer", found.components),
            Some(found) => (found.ledger, found.components),
        };
        let server = self.server.get();
        let serving = match server {
            None => STARTING,
            Some(server) if server.closing.is_cancelled() => "draining",
            Some(_) => GOOD,
        };
        // A policy that cannot be read ends the start.
        let policy = if server.is_some() { GOOD } else { STARTING };
        let event_loop = if self.is_alive() { GOOD } else { "it does not turn" };
        Checks([
            ("ledger", ledger),
            ("policy", policy),
            ("components", components),
            ("serving", serving),
            ("event_loop", event_loop),
        ])
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(board: &Board, name: &str) -> &'static str {
        board.checks().0.into_iter().find(|(one, _)| *one == name).unwrap().1
    }

    #[test]
    fn it_is_ready_when_all_is_good_and_until_it_drains() {
        let (board, closing) = (Board::default(), CancellationToken::new());
        assert!(board.is_alive() && !board.checks().are_good());
        board.serves(Arc::default(), closing.clone(), Box::new(|| 3));
        board.beats();
        board.found(GOOD, "none is loaded");
        assert_eq!((word(&board, "components"), board.checks().are_good()), ("none is loaded", false));
        board.found("sealed", GOOD);
        assert_eq!((word(&board, "ledger"), board.checks().are_good()), ("sealed", false));
        board.found(GOOD, GOOD);
        assert!(board.checks().are_good() && board.waiting() == 3);
        closing.cancel();
        assert_eq!((word(&board, "serving"), board.checks().are_good()), ("draining", false));
    }
}
