//! One runner as the host sees it: the calls that were given to it, and what it may say of them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::net::UnixStream as StdSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::frames::{self, FROM_RUNNER_BYTES_MAX, FromRunner};
use super::outbox::Outbox;
use super::process::{Process, Started, Starter};
use super::sealed::Sealed;
use super::wire::{Incoming, Malformed};
use crate::door::{Ask, Told};
use crate::guest::Run;
use crate::isolation::IsolationError;
use crate::wasi::Log;

/// Calls after which a runner is replaced, so that nothing that grows in it grows for ever.
const CALLS_MAX: u64 = 100_000;
/// Components after which it is: it holds the code of each, also of those that are served no more.
const COMPONENTS_MAX: usize = 256;
/// How long a runner may take to end a guest that was cancelled: guests are interrupted each millisecond, but for one
/// instruction that fills memory, on a machine that has time.
const CANCEL_WITHIN: Duration = Duration::from_secs(10);

/// A guest that has computed for so long labours: others that are given to its runner would wait for it at each turn.
const LABOURS_AFTER: Duration = Duration::from_millis(100);
/// What a runner with such a guest is to the system's scheduler, once others go elsewhere (`nice`, 0 to 19): it gets what
/// they leave, and a tenth beside them.
const NICE_ASIDE: i32 = 10;

/// What a call hears of its guest.
pub(super) enum Said {
    Asked(Ask),
    Ended(Run),
    /// The runner is gone.
    Lost,
}

/// A runner.
pub(super) struct Peer {
    outbox: Arc<Outbox>,
    state: Mutex<State>,
    alive: AtomicBool,
    process: Mutex<Option<Process>>,
    pid: u32,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Its place among those that were set aside, once it was.
    aside: Mutex<Option<OwnedSemaphorePermit>>,
}

#[derive(Default)]
struct State {
    calls: HashMap<u64, Entry>,
    components: HashSet<u32>,
    begun: u64,
}

struct Entry {
    /// None when nobody waits any more.
    said: Option<UnboundedSender<Said>>,
    /// Its guest waits for an answer.
    asking: bool,
    /// When its guest last had something to compute.
    since: Instant,
    log: Log,
    /// Its place in the runner, until the guest has ended there.
    _place: OwnedSemaphorePermit,
}

impl Peer {
    /// Starts a runner and listens to it.
    pub(super) async fn start(starter: &Starter) -> Result<Arc<Self>, IsolationError> {
        let Started { process, socket, .. } = starter.start().await?;
        Self::listen(socket, Some(process))
    }

    /// Listens to a runner that was started.
    pub(super) fn listen(socket: StdSocket, process: Option<Process>) -> Result<Arc<Self>, IsolationError> {
        socket.set_nonblocking(true).map_err(IsolationError::Start)?;
        let outbox = Arc::new(Outbox::new(UnixStream::from_std(socket).map_err(IsolationError::Start)?));
        let pid = process.as_ref().map_or(0, Process::id);
        let peer = Arc::new(Self {
            outbox: Arc::clone(&outbox),
            state: Mutex::default(),
            alive: AtomicBool::new(true),
            process: Mutex::new(process),
            pid,
            tasks: Mutex::default(),
            aside: Mutex::default(),
        });
        let listening = tokio::spawn(listen(Arc::clone(&outbox), Arc::downgrade(&peer)));
        let weak = Arc::downgrade(&peer);
        let sending = tokio::spawn(async move {
            if let (Err(error), Some(peer)) = (outbox.send_the_rest().await, weak.upgrade()) {
                peer.end(&error);
            }
        });
        lock(&peer.tasks).extend([listening, sending]);
        Ok(peer)
    }

    /// Whether calls can be given to it.
    pub(super) fn takes_more(&self) -> bool {
        let state = lock(&self.state);
        self.is_alive() && state.begun < CALLS_MAX && state.components.len() < COMPONENTS_MAX
    }

    /// Whether one of its guests has computed for long.
    pub(super) fn labours(&self) -> bool {
        lock(&self.state).calls.values().any(|entry| !entry.asking && entry.since.elapsed() >= LABOURS_AFTER)
    }

    /// Its calls go on, and it is given no others: those would wait for a guest that labours. The system lets it run
    /// behind other processes.
    pub(super) fn set_aside(&self, place: OwnedSemaphorePermit) {
        tracing::info!(pid = self.pid, "a guest computes for long; its process is set aside");
        *lock(&self.aside) = Some(place);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(Err(error)) = pid.map(|pid| setpriority_process(Some(pid), NICE_ASIDE)) {
            tracing::warn!(pid = self.pid, %error, "it cannot be made to run behind others");
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Gives a call to it.
    pub(super) fn give(self: &Arc<Self>, code: &Sealed, task: &[u8], log: &Log, place: OwnedSemaphorePermit) -> Given {
        let (sender, said) = unbounded_channel();
        let mut state = lock(&self.state);
        let call = state.begun;
        state.begun += 1;
        let given = Given { peer: Arc::clone(self), call, said, over: false };
        if !self.is_alive() {
            let _ = sender.send(Said::Lost);
            return given;
        }
        let entry = Entry { said: Some(sender), asking: false, since: Instant::now(), log: log.clone(), _place: place };
        state.calls.insert(call, entry);
        let mut sent = Ok(());
        if state.components.insert(code.id) {
            let frame = frames::component(code.id, code.class, code.bytes, &code.exports);
            sent = self.outbox.send(frame, Some(Arc::clone(&code.file)));
        }
        let sent = sent.and_then(|()| self.outbox.send(frames::begin(call, code.id, task), None));
        drop(state);
        if let Err(error) = sent {
            self.end(&error);
        }
        given
    }

    /// Ends the runner: whatever it runs is lost.
    pub(super) fn end(&self, why: &dyn std::fmt::Display) {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        let calls = std::mem::take(&mut lock(&self.state).calls);
        tracing::warn!(pid = self.pid, calls = calls.len(), %why, "a process for guests is lost");
        drop(lock(&self.process).take());
        for said in calls.into_values().filter_map(|entry| entry.said) {
            let _ = said.send(Said::Lost);
        }
    }

    /// Ends the runner when its work is done.
    pub(super) fn retire(&self) {
        self.alive.store(false, Ordering::Release);
        drop(lock(&self.process).take());
    }

    /// What it said.
    fn heard(&self, frame: &[u8]) -> Result<(), Malformed> {
        let unknown = Malformed("it speaks for a call that it was not given");
        let said = frames::read_from_runner(frame)?;
        let mut state = lock(&self.state);
        match said {
            FromRunner::Asked { call, printed, ask } => {
                let entry = state.calls.get_mut(&call).ok_or(unknown)?;
                if std::mem::replace(&mut entry.asking, true) {
                    return Err(Malformed("one guest asks twice at once"));
                }
                entry.log.write(&printed);
                // Whoever was cancelled hears nothing any more; its guest is being ended.
                if let Some(said) = &entry.said {
                    let _ = said.send(Said::Asked(ask));
                }
            }
            FromRunner::Ended { call, printed, swallowed, run } => {
                let entry = state.calls.remove(&call).ok_or(unknown)?;
                entry.log.write(&printed);
                entry.log.swallowed(swallowed);
                if let Some(said) = &entry.said {
                    let _ = said.send(Said::Ended(run));
                }
            }
            FromRunner::Ready(..) | FromRunner::Unfit(_) | FromRunner::Tried(_) => {
                return Err(Malformed("it speaks out of turn"));
            }
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        lock(&self.tasks).iter().for_each(JoinHandle::abort);
    }
}

/// A call that was given to a runner. Dropped before its end it is cancelled there.
pub(super) struct Given {
    peer: Arc<Peer>,
    call: u64,
    said: UnboundedReceiver<Said>,
    over: bool,
}

impl Given {
    /// What is said next of its guest.
    pub(super) async fn hear(&mut self) -> Said {
        let said = self.said.recv().await.unwrap_or(Said::Lost);
        self.over |= !matches!(said, Said::Asked(_));
        said
    }

    /// Tells its guest what it asked for.
    pub(super) fn tell(&self, told: &Told) {
        if let Some(entry) = lock(&self.peer.state).calls.get_mut(&self.call) {
            entry.asking = false;
            entry.since = Instant::now();
        }
        if let Err(error) = self.peer.outbox.send(frames::told(self.call, told), None) {
            self.peer.end(&error);
        }
    }

    /// Its runner neither ends it nor says anything: it is ended with all that it runs. This call is over.
    pub(super) fn give_up(&mut self) {
        self.over = true;
        // Not told that it was lost: it used its time.
        drop(lock(&self.peer.state).calls.remove(&self.call));
        self.peer.end(&"it does not answer");
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let call = self.call;
        let mut state = lock(&self.peer.state);
        let Some(entry) = state.calls.get_mut(&call) else { return };
        entry.said = None;
        drop(state);
        if let Err(error) = self.peer.outbox.send(frames::cancel(call), None) {
            return self.peer.end(&error);
        }
        // Without a runtime the process ends, and its runners with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(see_it_end(Arc::downgrade(&self.peer), call, CANCEL_WITHIN));
        }
    }
}

async fn see_it_end(peer: Weak<Peer>, call: u64, within: Duration) {
    tokio::time::sleep(within).await;
    let Some(peer) = peer.upgrade() else { return };
    let still_there = lock(&peer.state).calls.contains_key(&call);
    if still_there {
        peer.end(&"it does not end a call that was cancelled");
    }
}

/// Hears what a runner says until it is gone or says what it must not.
async fn listen(outbox: Arc<Outbox>, peer: Weak<Peer>) {
    let why = match hear_all(&outbox.socket, &peer).await {
        Ok(()) => "it ended".to_owned(),
        Err(error) => error.to_string(),
    };
    if let Some(peer) = peer.upgrade() {
        peer.end(&why);
    }
}

async fn hear_all(socket: &UnixStream, peer: &Weak<Peer>) -> io::Result<()> {
    let mut incoming = Incoming::new(FROM_RUNNER_BYTES_MAX);
    loop {
        socket.readable().await?;
        match socket.try_read(incoming.room()) {
            Ok(0) => return Ok(()),
            Ok(count) => incoming.came(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        let Some(peer) = peer.upgrade() else { return Ok(()) };
        while let Some(frame) = incoming.frame().map_err(io::Error::other)? {
            peer.heard(frame).map_err(io::Error::other)?;
        }
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
