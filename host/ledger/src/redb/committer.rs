//! The one thread that commits: it groups what waits, and never lets one caller fail another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::protocol::Forgot;
use super::reads::Reads;
use super::store::{Op, Place, Store};
use crate::commit::Prepared;
use crate::{Append, LedgerError, StreamId};

/// Most appends in one commit.
const GROUP_OPS_MAX: usize = 512;
/// Most bytes in one commit.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long a group waits for callers that were in the last one: without it the first to arrive
/// commits alone and the others form a second convoy.
const LINGER: Duration = Duration::from_micros(50);
/// How long what nobody waits for is held back for others to share its commit: far less than anybody who reads
/// it afterwards would notice, far more than a busy ledger needs.
const UNHURRIED_MAX: Duration = Duration::from_millis(5);
/// How often a ledger that cannot be opened again is tried.
const REOPEN_EVERY: Duration = Duration::from_millis(500);

type Reply = Box<dyn FnOnce(Result<Vec<u64>, LedgerError>) + Send>;
type ForgotReply = Box<dyn FnOnce(Result<Forgot, LedgerError>) + Send>;

/// Whether somebody waits for an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hurry {
    /// A commit begins as soon as it can.
    Now,
    /// It shares the commit of what comes next, within [`UNHURRIED_MAX`].
    Soon,
}

enum Message {
    Append(Op, Reply, Hurry),
    Forget(Vec<StreamId>, ForgotReply),
    Stop,
}

/// Where appends are handed in.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: Sender<Message>,
}

impl Queue {
    pub(super) async fn append(&self, batch: Vec<Append>, hurry: Hurry) -> Result<Vec<u64>, LedgerError> {
        let op = Op::new(batch, None, false)?;
        let (reply, outcome) = oneshot::channel();
        self.send(Message::Append(op, Box::new(move |result| drop(reply.send(result))), hurry));
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn submit(&self, op: Op, reply: Reply) {
        self.send(Message::Append(op, reply, Hurry::Now));
    }

    fn send(&self, message: Message) {
        if let Err(std::sync::mpsc::SendError(Message::Append(_, reply, _))) = self.sender.send(message) {
            reply(Err(closed()));
        }
    }

    /// Removes what lies before the latest `Pruned` of these streams, between two commits.
    pub(super) fn forget(&self, streams: Vec<StreamId>, reply: ForgotReply) {
        if let Err(std::sync::mpsc::SendError(Message::Forget(_, reply))) =
            self.sender.send(Message::Forget(streams, reply))
        {
            reply(Err(closed()));
        }
    }

    pub(super) fn stop(&self) {
        // The thread is gone already when this fails.
        let _ = self.sender.send(Message::Stop);
    }
}

fn closed() -> LedgerError {
    LedgerError::unavailable("it was closed")
}

/// Starts the committer of an open ledger.
pub(super) fn start(
    store: Store,
    place: Place,
    reads: Arc<Reads>,
    incarnation: Arc<AtomicU64>,
) -> Result<(Queue, JoinHandle<()>), LedgerError> {
    let (sender, receiver) = channel();
    let committer = Committer { store: Ok(store), place, reads, incarnation, tried: Instant::now(), last_group: 1 };
    let thread = std::thread::Builder::new()
        .name("oncegate-ledger".to_owned())
        .spawn(move || committer.run(&receiver))
        .map_err(|error| LedgerError::io("starting the committer", &error))?;
    Ok((Queue { sender }, thread))
}

struct Committer {
    /// The open ledger, or why it is not open.
    store: Result<Store, LedgerError>,
    place: Place,
    reads: Arc<Reads>,
    incarnation: Arc<AtomicU64>,
    tried: Instant,
    last_group: usize,
}

impl Committer {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let mut group = Group::default();
            match self.next(receiver) {
                Some(Message::Append(op, reply, hurry)) => group.add(op, reply, hurry),
                Some(Message::Forget(streams, reply)) => {
                    self.forget(&streams, reply);
                    continue;
                }
                Some(Message::Stop) | None => return,
            }
            let next = group.fill(receiver, self.last_group);
            self.last_group = group.hurried;
            self.commit(group);
            match next {
                Some(Message::Forget(streams, reply)) => self.forget(&streams, reply),
                Some(Message::Stop) => return,
                Some(Message::Append(..)) | None => {}
            }
        }
    }

    /// Waits for a message. A ledger that a failure closed is opened again meanwhile, whether or not
    /// anybody appends: those who hold something in memory read first.
    fn next(&mut self, receiver: &Receiver<Message>) -> Option<Message> {
        while self.store.is_err() {
            match receiver.recv_timeout(REOPEN_EVERY.saturating_sub(self.tried.elapsed())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.reopen(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        receiver.recv().ok()
    }

    fn forget(&mut self, streams: &[StreamId], reply: ForgotReply) {
        self.open_if_due();
        let outcome = match &mut self.store {
            Ok(store) => store.forget(streams),
            Err(why) => Err(why.clone()),
        };
        if self.store.is_ok() && outcome.is_err() {
            self.reopen();
        }
        reply(outcome);
    }

    fn open_if_due(&mut self) {
        if self.store.is_err() && self.tried.elapsed() >= REOPEN_EVERY {
            self.reopen();
        }
    }

    fn commit(&mut self, group: Group) {
        self.open_if_due();
        let outcomes = match &mut self.store {
            Ok(store) => store.commit(&group.ops),
            Err(why) => Err(why.clone()),
        };
        match outcomes {
            Ok(outcomes) => {
                for (reply, outcome) in group.replies.into_iter().zip(outcomes) {
                    reply(outcome);
                }
            }
            Err(failure) => {
                tracing::error!(%failure, "a ledger commit failed; its outcome is not known");
                if self.store.is_ok() {
                    self.reopen();
                }
                // Told only after the ledger was opened again, so that they can read what is true.
                for reply in group.replies {
                    reply(Err(unknown(&failure)));
                }
            }
        }
    }

    /// A failed commit ends this incarnation: close, open, and believe only what is read.
    fn reopen(&mut self) {
        self.tried = Instant::now();
        self.reads.close();
        let closed = Err(LedgerError::unavailable("it is being opened again"));
        let before = std::mem::replace(&mut self.store, closed).err();
        self.store = Store::open(&self.place);
        match &self.store {
            Ok(store) => {
                self.reads.reopened(store.opened());
                self.incarnation.fetch_add(1, Ordering::Relaxed);
            }
            // Tried twice a second: said once.
            Err(error) if before.as_ref() != Some(error) => {
                tracing::error!(%error, "the ledger could not be opened again");
            }
            Err(_) => {}
        }
    }
}

fn unknown(failure: &LedgerError) -> LedgerError {
    match failure {
        LedgerError::Unavailable { .. } | LedgerError::Full { .. } | LedgerError::Damaged { .. } => failure.clone(),
        other => LedgerError::unavailable(other),
    }
}

#[derive(Default)]
struct Group {
    ops: Vec<Op>,
    replies: Vec<Reply>,
    bytes: u64,
    /// How many of them somebody waits for.
    hurried: usize,
}

impl Group {
    fn add(&mut self, op: Op, reply: Reply, hurry: Hurry) {
        self.bytes += op.batch.iter().map(Prepared::len).sum::<u64>();
        self.hurried += usize::from(hurry == Hurry::Now);
        self.ops.push(op);
        self.replies.push(reply);
    }

    /// Takes what waits, and lingers while fewer than the last group are in, or while nobody waits for any of
    /// it. Gives what comes after it and is no append.
    fn fill(&mut self, receiver: &Receiver<Message>, expected: usize) -> Option<Message> {
        let began = Instant::now();
        let mut hurried_since = (self.hurried > 0).then_some(began);
        while self.ops.len() < GROUP_OPS_MAX && self.bytes < GROUP_BYTES_MAX {
            let until = match hurried_since {
                None => Some(began + UNHURRIED_MAX),
                Some(since) if self.hurried < expected => Some(since + LINGER),
                Some(_) => None,
            };
            let message = match until {
                Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => receiver.try_recv().map_err(|_| RecvTimeoutError::Timeout),
            };
            match message {
                Ok(Message::Append(op, reply, hurry)) => {
                    self.add(op, reply, hurry);
                    if hurried_since.is_none() && hurry == Hurry::Now {
                        hurried_since = Some(Instant::now());
                    }
                }
                Ok(other) => return Some(other),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(hurry: Hurry) -> Message {
        Message::Append(Op::new(Vec::new(), None, false).unwrap(), Box::new(drop), hurry)
    }

    fn first(hurry: Hurry) -> Group {
        let mut group = Group::default();
        let Message::Append(op, reply, hurry) = message(hurry) else { unreachable!() };
        group.add(op, reply, hurry);
        group
    }

    #[test]
    fn what_nobody_waits_for_shares_the_next_commit() {
        let (sender, receiver) = channel();
        let mut group = first(Hurry::Soon);
        let later = std::thread::spawn(move || {
            sender.send(message(Hurry::Soon)).unwrap();
            sender.send(message(Hurry::Now)).unwrap();
            sender
        });
        assert!(group.fill(&receiver, 1).is_none());
        assert_eq!((group.ops.len(), group.hurried), (3, 1));
        drop(later.join().unwrap());
    }

    #[test]
    fn what_nobody_waits_for_is_committed_when_nothing_comes_and_at_the_end() {
        let (sender, receiver) = channel();
        let mut group = first(Hurry::Soon);
        assert!(group.fill(&receiver, 1).is_none());
        assert_eq!((group.ops.len(), group.hurried), (1, 0));
        sender.send(Message::Stop).unwrap();
        assert!(matches!(first(Hurry::Soon).fill(&receiver, 1), Some(Message::Stop)));
    }
}
