//! A process that does not own the ledger: it hands its appends to the owner, and takes over when
//! the owner is gone.
//!
//! Losing the owner in the middle of an append leaves that append unknown. Each carries a nonce that
//! is stored with its records, so asking again gives the truth and never a second append.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::owner::{Owner, Ownership};
use super::protocol::{self, Answered, PROTOCOL, Reply, Request};
use super::store::Op;
use super::{Shared, server};
use crate::LedgerError;

/// How long an owner is looked for, and how long one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How often overdue calls are looked for.
const TICK: Duration = Duration::from_millis(500);

type Answer = Result<Reply, LedgerError>;

/// How a process got hold of a ledger.
pub(super) enum Attached {
    /// It may own it.
    Owner(Ownership),
    /// Another does.
    Client { id: [u8; 16], stream: UnixStream },
}

/// Becomes the owner or finds it.
pub(super) fn attach(path: &Path) -> Result<Attached, LedgerError> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(ownership) = Ownership::take(path)? {
            return Ok(Attached::Owner(ownership));
        }
        match greet(path) {
            Ok((id, stream)) => return Ok(Attached::Client { id, stream }),
            Err(LedgerError::Unavailable { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
}

/// Connects, and asks who is there.
fn greet(path: &Path) -> Result<([u8; 16], UnixStream), LedgerError> {
    let said = |error: std::io::Error| LedgerError::unavailable(format!("its owner does not answer: {error}"));
    let mut stream = server::connect(path).map_err(said)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    protocol::send(&mut stream, &(0_u64, Request::Hello { protocol: PROTOCOL })).map_err(said)?;
    let (_, reply): Answered = protocol::receive(&mut stream).map_err(said)?;
    stream.set_read_timeout(None).map_err(said)?;
    match reply? {
        Reply::Hello { id } => Ok((id, stream)),
        _ => Err(LedgerError::unavailable("its owner does not say who it is")),
    }
}

enum Message {
    Call(Request, oneshot::Sender<Answer>),
    Frame(u64, Answered),
    Lost(u64),
    TakeOver(Weak<Shared>),
    Stop,
}

/// Where calls are handed in.
#[derive(Clone)]
pub(super) struct Calls {
    sender: Sender<Message>,
}

impl Calls {
    /// The answer; or the request back, when it was not even handed in because this process became
    /// the owner meanwhile.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Request> {
        let (reply, answer) = oneshot::channel();
        if let Err(SendError(Message::Call(request, _))) = self.sender.send(Message::Call(request, reply)) {
            return Err(request);
        }
        Ok(answer.await.unwrap_or_else(|_| Err(LedgerError::unavailable("it was closed"))))
    }
}

/// See the module.
pub(super) struct Client {
    sender: Sender<Message>,
}

impl Client {
    pub(super) fn start(path: &Path, id: [u8; 16], stream: UnixStream) -> Result<Client, LedgerError> {
        let (sender, receiver) = channel();
        let mut actor = Actor {
            path: path.to_owned(),
            id,
            sender: sender.clone(),
            shared: Weak::new(),
            connection: None,
            connections: 0,
            pending: BTreeMap::new(),
            calls: 0,
            gave_up: None,
        };
        actor.listen_to(stream)?;
        std::thread::Builder::new()
            .name("oncegate-ledger-calls".to_owned())
            .spawn(move || actor.run(&receiver))
            .map_err(|error| LedgerError::io("starting the ledger's client", &error))?;
        Ok(Client { sender })
    }

    /// Says what becomes the owner when this process takes over.
    pub(super) fn may_take_over(&self, shared: Weak<Shared>) {
        let _ = self.sender.send(Message::TakeOver(shared));
    }

    pub(super) fn calls(&self) -> Calls {
        Calls { sender: self.sender.clone() }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Stop);
    }
}

struct Pending {
    request: Request,
    reply: oneshot::Sender<Answer>,
    since: Instant,
}

struct Actor {
    path: PathBuf,
    id: [u8; 16],
    sender: Sender<Message>,
    shared: Weak<Shared>,
    connection: Option<UnixStream>,
    connections: u64,
    pending: BTreeMap<u64, Pending>,
    calls: u64,
    /// When no owner could be found, and why: calls that queued up meanwhile do not each wait again.
    gave_up: Option<(Instant, LedgerError)>,
}

impl Actor {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(Message::Call(request, reply)) => self.call(request, reply),
                Ok(Message::Frame(connection, (number, answer))) if connection == self.connections => {
                    if let Some(pending) = self.pending.remove(&number) {
                        let _ = pending.reply.send(answer);
                    }
                }
                Ok(Message::Frame(..)) => {}
                Ok(Message::Lost(connection)) if connection == self.connections => self.recover(),
                Ok(Message::Lost(_)) => {}
                Ok(Message::TakeOver(shared)) => {
                    self.shared = shared;
                    // An owner that left before this could not be replaced yet.
                    self.gave_up = None;
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.expire(),
            }
        }
        // Calls handed in before a take-over was seen are still answered.
        while let Ok(message) = receiver.try_recv() {
            if let (Message::Call(request, reply), Some((queue, reads))) = (message, self.owned()) {
                answer_here(&queue, &reads, request, reply);
            }
        }
        if let Some(stream) = self.connection.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn call(&mut self, request: Request, reply: oneshot::Sender<Answer>) {
        // Handed in before the take-over was seen.
        if let Some((queue, reads)) = self.owned() {
            return answer_here(&queue, &reads, request, reply);
        }
        if let (None, Some((since, why))) = (&self.connection, &self.gave_up)
            && since.elapsed() < TICK
        {
            return drop(reply.send(Err(why.clone())));
        }
        self.calls += 1;
        let number = self.calls;
        self.pending.insert(number, Pending { request, reply, since: Instant::now() });
        if self.connection.is_none() || !self.write(number) {
            self.recover();
        }
    }

    fn owned(&self) -> Option<(super::committer::Queue, std::sync::Arc<super::Reads>)> {
        match self.shared.upgrade()?.mode().handle() {
            super::Handle::Owner(queue, reads) => Some((queue, reads)),
            super::Handle::Client(_) | super::Handle::Reader(..) => None,
        }
    }

    fn write(&mut self, number: u64) -> bool {
        let (Some(stream), Some(pending)) = (&mut self.connection, self.pending.get(&number)) else {
            return false;
        };
        match protocol::encode(&(number, &pending.request)) {
            Ok(frame) => std::io::Write::write_all(stream, &frame).is_ok(),
            Err(error) => {
                let why = LedgerError::Invalid { why: error.to_string() };
                if let Some(pending) = self.pending.remove(&number) {
                    let _ = pending.reply.send(Err(why));
                }
                true
            }
        }
    }

    fn listen_to(&mut self, stream: UnixStream) -> Result<(), LedgerError> {
        self.connections += 1;
        let connection = self.connections;
        let failed = |error: std::io::Error| LedgerError::io("talking to the ledger's owner", &error);
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut from = stream.try_clone().map_err(failed)?;
        let sender = self.sender.clone();
        std::thread::Builder::new()
            .name("oncegate-ledger-answers".to_owned())
            .spawn(move || {
                while let Ok(answered) = protocol::receive(&mut from) {
                    if sender.send(Message::Frame(connection, answered)).is_err() {
                        return;
                    }
                }
                let _ = sender.send(Message::Lost(connection));
            })
            .map_err(failed)?;
        self.connection = Some(stream);
        Ok(())
    }

    /// The owner is lost: find the next one, or become it, and ask again what was not answered.
    fn recover(&mut self) {
        if let Some(stream) = self.connection.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let outcome = match attach(&self.path) {
            Ok(Attached::Client { id, stream }) if id == self.id => self.resume(stream),
            Ok(Attached::Client { .. }) => Err(LedgerError::Foreign {
                at: self.path.display().to_string(),
                why: "another ledger is in its place now".to_owned(),
            }),
            Ok(Attached::Owner(ownership)) => self.take_over(ownership),
            Err(error) => Err(error),
        };
        self.gave_up = outcome.err().map(|error| (Instant::now(), error));
        if let Some((_, error)) = &self.gave_up {
            for (_, pending) in std::mem::take(&mut self.pending) {
                let _ = pending.reply.send(Err(error.clone()));
            }
        }
    }

    fn resume(&mut self, stream: UnixStream) -> Result<(), LedgerError> {
        self.listen_to(stream)?;
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        for number in numbers {
            if let Some(Pending { request: Request::Append { again, .. }, .. }) = self.pending.get_mut(&number) {
                *again = true;
            }
            if !self.write(number) {
                break; // Its reader reports the loss, and this begins anew.
            }
        }
        Ok(())
    }

    fn take_over(&mut self, ownership: Ownership) -> Result<(), LedgerError> {
        let Some(shared) = self.shared.upgrade() else {
            return Err(LedgerError::unavailable("it was closed"));
        };
        super::files::check_exists(&self.path)?;
        let owner = Owner::start(&self.path, ownership)?;
        if owner.id() != self.id {
            return Err(LedgerError::Foreign {
                at: self.path.display().to_string(),
                why: "another ledger is in its place now".to_owned(),
            });
        }
        tracing::info!(ledger = %self.path.display(), "took over the ledger: its owner is gone");
        let (queue, reads) = (owner.queue(), owner.reads());
        for (_, mut pending) in std::mem::take(&mut self.pending) {
            if let Request::Append { again, .. } = &mut pending.request {
                *again = true;
            }
            answer_here(&queue, &reads, pending.request, pending.reply);
        }
        shared.became_owner(owner);
        Ok(())
    }

    fn expire(&mut self) {
        let overdue = |pending: &Pending| pending.since.elapsed() > PATIENCE;
        let numbers: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| overdue(pending)).map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(pending) = self.pending.remove(&number) {
                let _ = pending.reply.send(Err(LedgerError::unavailable("its owner does not answer")));
            }
        }
    }
}

/// Answers a call in the process that owns the ledger.
fn answer_here(
    queue: &super::committer::Queue,
    reads: &super::Reads,
    request: Request,
    reply: oneshot::Sender<Answer>,
) {
    match request {
        Request::Append { batch, nonce, again } => match Op::new(batch, Some(nonce), again) {
            Ok(op) => queue.submit(op, Box::new(move |outcome| drop(reply.send(outcome.map(Reply::Versions))))),
            Err(error) => drop(reply.send(Err(error))),
        },
        Request::Forget { streams } => {
            queue.forget(streams, Box::new(move |outcome| drop(reply.send(outcome.map(Reply::Forgot)))));
        }
        question => drop(reply.send(reads.answer(&question))),
    }
}
