//! The thread that moves the head marker, right behind the commits.
//!
//! An append is acknowledged when its commit is durable; the marker is written and synced meanwhile, several
//! commits at once where they come faster. Nothing may leave on the strength of an append before
//! [`Marks::when_marked`] has said that the marker names it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::marker::Mark;
use crate::LedgerError;

/// How often a marker that could not be written is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Told whether the marker names what was asked for.
pub(super) type Reply = Box<dyn FnOnce(Result<(), LedgerError>) + Send>;
/// Writes the marker; durable when it returns.
type Write = Box<dyn FnMut(Mark) -> Result<(), LedgerError> + Send>;

/// Where marks are asked for, and waited for.
#[derive(Clone)]
pub(super) struct Marks {
    shared: Arc<Shared>,
}

/// The thread; dropping it writes what was asked for, and ends.
pub(super) struct Marking {
    marks: Marks,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest mark that was asked for, how many were, and how many of them are written.
    wanted: Option<Mark>,
    asked: u64,
    written: u64,
    /// The record that the marker names.
    named: u64,
    /// The first record that was asked for and is not named yet.
    unmarked: Option<u64>,
    /// Why the last try failed; none once one succeeded.
    failed: Option<LedgerError>,
    waiting: Vec<(u64, Reply)>,
    stopping: bool,
}

impl Marking {
    /// `named` is the record that the marker names now.
    pub(super) fn start(named: u64, write: Write) -> Result<Marking, LedgerError> {
        let marks = Marks { shared: Arc::default() };
        marks.shared.state().named = named;
        let shared = Arc::clone(&marks.shared);
        let thread = std::thread::Builder::new()
            .name("oncegate-ledger-marker".to_owned())
            .spawn(move || shared.run(write))
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
        self.marks.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Marks {
    /// Asks for the marker to name a record that is durable.
    pub(super) fn want(&self, mark: Mark) {
        let mut state = self.shared.state();
        state.unmarked.get_or_insert(mark.seq);
        state.wanted = Some(mark);
        state.asked += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Replies when the marker names everything that was asked for before, or cannot.
    pub(super) fn when_marked(&self, reply: Reply) {
        let mut state = self.shared.state();
        let answer = match &state.failed {
            _ if state.written == state.asked => Ok(()),
            Some(why) => Err(why.clone()),
            None if state.stopping => Err(closed()),
            None => {
                let asked = state.asked;
                return state.waiting.push((asked, reply));
            }
        };
        drop(state);
        reply(answer);
    }

    /// As [`Marks::when_marked`], waiting.
    pub(super) fn wait(&self) -> Result<(), LedgerError> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.when_marked(Box::new(move |outcome| drop(reply.send(outcome))));
        answer.recv().unwrap_or_else(|_| Err(closed()))
    }

    /// Why the marker cannot be moved now: what needs it is refused.
    pub(super) fn failing(&self) -> Option<LedgerError> {
        self.shared.state().failed.clone()
    }

    /// The record that the marker names.
    pub(super) fn named(&self) -> u64 {
        self.shared.state().named
    }

    /// The first record that it does not name yet and must.
    pub(super) fn unmarked(&self) -> Option<u64> {
        self.shared.state().unmarked
    }
}

fn closed() -> LedgerError {
    LedgerError::unavailable("it was closed")
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut write: Write) {
        while let Some((mark, asked)) = self.next() {
            let outcome = write(mark);
            if let Err(error) = &outcome {
                tracing::error!(%error, "the head marker could not be moved; nothing is sent until it can");
            }
            self.written(mark, asked, &outcome);
            if outcome.is_err() && self.state().stopping {
                break;
            }
        }
        let left = std::mem::take(&mut self.state().waiting);
        left.into_iter().for_each(|(_, reply)| reply(Err(closed())));
    }

    /// Waits for a mark to write, and after a failure a while; none when it is stopping and all are written.
    fn next(&self) -> Option<(Mark, u64)> {
        let mut state = self.state();
        if state.failed.is_some() {
            let waited = self.changed.wait_timeout_while(state, RETRY_EVERY, |state| !state.stopping);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let idle = |state: &mut State| state.wanted.is_none() && !state.stopping;
        let mut state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        Some((state.wanted.take()?, state.asked))
    }

    fn written(&self, mark: Mark, asked: u64, outcome: &Result<(), LedgerError>) {
        let mut state = self.state();
        let told = match outcome {
            Ok(()) => {
                (state.written, state.named) = (asked, mark.seq);
                state.unmarked = state.wanted.map(|_| mark.seq + 1);
                state.failed = None;
                let (told, waiting) = std::mem::take(&mut state.waiting).into_iter().partition(|(at, _)| *at <= asked);
                state.waiting = waiting;
                told
            }
            Err(why) => {
                state.failed = Some(why.clone());
                state.wanted.get_or_insert(mark);
                std::mem::take(&mut state.waiting)
            }
        };
        drop(state);
        told.into_iter().for_each(|(_, reply): (u64, Reply)| reply(outcome.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn mark(seq: u64) -> Mark {
        Mark { ledger: [1; 16], seq, digest: [seq as u8; 32] }
    }

    /// A marker whose writes wait for an outcome each, and are told.
    fn slow() -> (Marking, Sender<Result<(), LedgerError>>, Receiver<u64>) {
        let (outcomes, next) = channel::<Result<(), LedgerError>>();
        let (told, written) = channel();
        let write = move |mark: Mark| {
            told.send(mark.seq).unwrap();
            next.recv().unwrap()
        };
        (Marking::start(0, Box::new(write)).unwrap(), outcomes, written)
    }

    fn ask(marking: &Marking) -> Receiver<Result<(), LedgerError>> {
        let (reply, answer) = channel();
        marking.marks().when_marked(Box::new(move |outcome| drop(reply.send(outcome))));
        answer
    }

    #[test]
    fn nobody_hears_of_a_mark_before_it_is_written() {
        let (marking, outcomes, written) = slow();
        assert_eq!(ask(&marking).recv().unwrap(), Ok(()), "nothing was asked for");
        marking.marks().want(mark(1));
        let answer = ask(&marking);
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), 1);
        assert!(answer.try_recv().is_err() && marking.marks().unmarked() == Some(1));
        outcomes.send(Ok(())).unwrap();
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
        assert_eq!(marking.marks().unmarked(), None);
    }

    #[test]
    fn marks_that_come_while_one_is_written_share_the_next() {
        let (marking, outcomes, written) = slow();
        marking.marks().want(mark(1));
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), 1);
        (2..=9).for_each(|seq| marking.marks().want(mark(seq)));
        let answer = ask(&marking);
        outcomes.send(Ok(())).unwrap();
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), 9);
        assert!(answer.try_recv().is_err() && marking.marks().unmarked() == Some(2));
        outcomes.send(Ok(())).unwrap();
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
    }

    #[test]
    fn a_failure_refuses_until_the_marker_is_written() {
        let (marking, outcomes, written) = slow();
        marking.marks().want(mark(1));
        let answer = ask(&marking);
        let full = LedgerError::Full { why: "no space".to_owned() };
        outcomes.send(Err(full.clone())).unwrap();
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Err(full.clone()));
        assert_eq!(marking.marks().failing(), Some(full.clone()));
        assert_eq!(ask(&marking).recv_timeout(PATIENCE).unwrap(), Err(full));
        // It is tried again, with nobody asking.
        assert_eq!((written.recv_timeout(PATIENCE).unwrap(), written.recv_timeout(PATIENCE).unwrap()), (1, 1));
        outcomes.send(Ok(())).unwrap();
        while marking.marks().failing().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ask(&marking).recv_timeout(PATIENCE).unwrap(), Ok(()));
    }

    #[test]
    fn what_was_asked_for_is_written_before_the_end() {
        let (marking, outcomes, written) = slow();
        marking.marks().want(mark(7));
        outcomes.send(Ok(())).unwrap();
        drop(marking);
        assert_eq!(written.try_recv().unwrap(), 7);
    }
}
