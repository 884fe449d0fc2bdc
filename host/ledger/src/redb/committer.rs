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
use crate::{Append, Event, LedgerError, StreamId};

/// Most appends in one commit.
const GROUP_OPS_MAX: usize = 512;
/// Most bytes in one commit.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long a group waits for callers that were in the last one: without it the first to arrive
/// commits alone and the others form a second convoy.
const LINGER: Duration = Duration::from_micros(50);
/// How often a ledger that cannot be opened again is tried.
const REOPEN_EVERY: Duration = Duration::from_millis(500);

type Reply = Box<dyn FnOnce(Result<Vec<u64>, LedgerError>) + Send>;
type ForgotReply = Box<dyn FnOnce(Result<Forgot, LedgerError>) + Send>;

enum Message {
    Append(Op, Reply),
    Forget(Vec<StreamId>, ForgotReply),
    Stop,
}

/// Where appends are handed in.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: Sender<Message>,
}

impl Queue {
    pub(super) async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        let (reply, outcome) = oneshot::channel();
        let op = Op { batch, nonce: None, again: false };
        self.submit(op, Box::new(move |result| drop(reply.send(result))));
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn submit(&self, op: Op, reply: Reply) {
        if let Err(std::sync::mpsc::SendError(Message::Append(_, reply))) = self.sender.send(Message::Append(op, reply))
        {
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
                Some(Message::Append(op, reply)) => group.add(op, reply),
                Some(Message::Forget(streams, reply)) => {
                    self.forget(&streams, reply);
                    continue;
                }
                Some(Message::Stop) | None => return,
            }
            let next = group.fill(receiver, self.last_group);
            self.last_group = group.ops.len();
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
                self.reads.reopened(store.database());
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
}

impl Group {
    fn add(&mut self, mut op: Op, reply: Reply) {
        let places = op.batch.iter_mut().filter_map(|append| append.event.as_mut()).flat_map(Event::stored_mut);
        self.bytes += places.map(|bytes| bytes.len()).sum::<u64>();
        self.ops.push(op);
        self.replies.push(reply);
    }

    /// Takes what waits, and lingers while fewer than the last group are in. Gives what comes after it
    /// and is no append.
    fn fill(&mut self, receiver: &Receiver<Message>, expected: usize) -> Option<Message> {
        let until = Instant::now() + LINGER;
        while self.ops.len() < GROUP_OPS_MAX && self.bytes < GROUP_BYTES_MAX {
            let message = if self.ops.len() < expected {
                receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
            } else {
                receiver.try_recv().map_err(|_| RecvTimeoutError::Timeout)
            };
            match message {
                Ok(Message::Append(op, reply)) => self.add(op, reply),
                Ok(other) => return Some(other),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}
