//! What happens in a runner: it walls itself off, then runs what the host gives it until the host is gone.
//!
//! Guests run by the same code as in the host's own process. What they ask for is forwarded.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use super::frames::{self, Begin, FROM_RUNNER_BYTES_MAX, TO_RUNNER_BYTES_MAX, ToRunner};
use super::lockdown::{self, Kind};
use super::outbox::Outbox;
use super::wire::{Incoming, Malformed};
use super::{attempts, sealed};
use crate::cache;
use crate::door::{Ask, Door, Told};
use crate::engine::Runtime;
use crate::guest::{self, Run};
use crate::isolation::Walls;
use crate::load::{self, Linked};
use crate::wasi::Log;

/// Bytes that a guest may print at most, whatever the policy keeps: they travel in one frame.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Files that may come with what is read at once.
const FILES_AT_ONCE: usize = 8;

/// From the start of the process to its end.
pub(crate) fn main() -> ExitCode {
    let host = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(host).is_err() {
        eprintln!("this command is for oncegate itself: it runs guests for a host behind a socket");
        return ExitCode::from(2);
    }
    match walled() {
        Ok((runtime, tokio, socket, walls)) => match tokio.block_on(serve(runtime, socket, walls)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(why) => {
            // The host says it; there is nobody else to tell.
            let _ = sealed::write(host, &frames::unfit(&why));
            ExitCode::FAILURE
        }
    }
}

type Walled = (Runtime, tokio::runtime::Runtime, std::os::unix::net::UnixStream, Walls);

fn walled() -> Result<Walled, String> {
    let walls = lockdown::enter(Kind::Runner)?;
    // A guest that found a hole has broken what others rely on: nothing goes on after a panic.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let text = |error: io::Error| error.to_string();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let socket = rustix::stdio::stdin().try_clone_to_owned().map_err(text)?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).map_err(text)?;
    lockdown::seal(Kind::Runner)?;
    Ok((runtime, tokio, socket, walls))
}

/// What the tasks of a runner share.
pub(crate) struct Line {
    outbox: Outbox,
    /// Guests that wait for an answer.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Told>>>,
    /// Guests that run.
    running: Mutex<HashMap<u64, CancellationToken>>,
}

/// A guest's door in a runner: what it asks for is forwarded.
pub(crate) struct HostDoor {
    line: Arc<Line>,
    call: u64,
    log: Log,
}

impl HostDoor {
    pub(crate) async fn ask(&mut self, ask: Ask) -> wasmtime::Result<Told> {
        let gone = || wasmtime::format_err!("the host is gone");
        let (sender, told) = oneshot::channel();
        let (printed, _) = self.log.news();
        let frame = frames::asked(self.call, &printed, &ask);
        if frame.len() > FROM_RUNNER_BYTES_MAX {
            return Ok(Told::OverLimit("host-call-bytes"));
        }
        lock(&self.line.waiting).insert(self.call, sender);
        self.line.outbox.send(frame, None).map_err(|_| gone())?;
        told.await.map_err(|_| gone())
    }
}

async fn serve(runtime: Runtime, socket: std::os::unix::net::UnixStream, walls: Walls) -> io::Result<()> {
    let outbox = Outbox::new(UnixStream::from_std(socket)?);
    let line = Arc::new(Line { outbox, waiting: Mutex::default(), running: Mutex::default() });
    let rest = Arc::clone(&line);
    tokio::spawn(async move { rest.outbox.send_the_rest().await });
    let slots = u32::try_from(runtime.slots.available_permits()).unwrap_or(u32::MAX);
    line.outbox.send(frames::ready(walls, slots), None)?;
    let mut inside = Inside { runtime, line, components: HashMap::new(), files: VecDeque::new() };
    let mut incoming = Incoming::new(TO_RUNNER_BYTES_MAX);
    while inside.read(&mut incoming).await? {
        while let Some(frame) = incoming.frame().map_err(io::Error::other)? {
            let said = frames::read_to_runner(frame).map_err(io::Error::other)?;
            inside.heard(said)?;
        }
    }
    Ok(())
}

struct Inside {
    runtime: Runtime,
    line: Arc<Line>,
    components: HashMap<u32, Arc<Result<Linked, String>>>,
    /// Files that came, in the order of the frames that tell of them.
    files: VecDeque<OwnedFd>,
}

impl Inside {
    /// Reads what is there; false at the end.
    async fn read(&mut self, incoming: &mut Incoming) -> io::Result<bool> {
        let (line, files) = (Arc::clone(&self.line), &mut self.files);
        let socket = &line.outbox.socket;
        let count = socket.async_io(Interest::READABLE, || receive(socket, incoming.room(), files)).await?;
        incoming.came(count);
        Ok(count > 0)
    }

    fn heard(&mut self, said: ToRunner) -> io::Result<()> {
        match said {
            ToRunner::Component { component, class, bytes, exports } => {
                let file = self.files.pop_front().ok_or(Malformed("a component came without its code"));
                let code = sealed::read(file.map_err(io::Error::other)?, bytes)?;
                let engine = self.runtime.engine();
                let linked = cache::deserialize(engine, &code).map_err(|error| format!("{error:#}"));
                let linked = linked.and_then(|component| {
                    load::link(engine, &component, class, &exports).map_err(|error| error.to_string())
                });
                self.components.insert(component, Arc::new(linked));
            }
            ToRunner::Begin(begin) => self.begin(*begin)?,
            ToRunner::Told { call, told } => {
                // A guest that ran out of time has gone meanwhile.
                if let Some(waiting) = lock(&self.line.waiting).remove(&call) {
                    let _ = waiting.send(told);
                }
            }
            ToRunner::Cancel { call } => {
                if let Some(running) = lock(&self.line.running).get(&call) {
                    running.cancel();
                }
            }
            ToRunner::Try => self.line.outbox.send(frames::tried(&attempts::all()), None)?,
        }
        Ok(())
    }

    fn begin(&self, begin: Begin) -> io::Result<()> {
        let absent = || io::Error::other(Malformed("there is no such component"));
        let linked = Arc::clone(self.components.get(&begin.component).ok_or_else(absent)?);
        let (line, stop) = (Arc::clone(&self.line), CancellationToken::new());
        lock(&line.running).insert(begin.call, stop.clone());
        let slot = Arc::clone(&self.runtime.slots).try_acquire_owned().ok();
        tokio::spawn(run(line, linked, begin, slot, stop));
        Ok(())
    }
}

/// Runs one guest and says how it ended. When that cannot be said the host is gone, and this process with it.
async fn run(
    line: Arc<Line>,
    linked: Arc<Result<Linked, String>>,
    begin: Begin,
    slot: Option<OwnedSemaphorePermit>,
    stop: CancellationToken,
) {
    let Begin { call, tool, bounds, arguments, .. } = begin;
    let log = Log::new(bounds.log_bytes_max.min(LOG_BYTES_MAX));
    let door = Door::Host(HostDoor { line: Arc::clone(&line), call, log: log.clone() });
    let run = match &*linked {
        Err(why) => Run::Trapped(why.clone()),
        // The host knows how many there are; only one with less room than the first comes to this.
        Ok(_) if slot.is_none() => Run::Limit("calls-at-once"),
        Ok(linked) => tokio::select! {
            biased;
            () = stop.cancelled() => Run::Lost,
            run = guest::run(linked, tool, door, bounds, arguments, &log) => run,
        },
    };
    lock(&line.waiting).remove(&call);
    lock(&line.running).remove(&call);
    // Free again before the host knows.
    drop(slot);
    let (printed, swallowed) = log.news();
    let _ = line.outbox.send(frames::ended(call, &printed, swallowed, &run), None);
}

fn receive(socket: &UnixStream, room: &mut [u8], files: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_AT_ONCE))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(room)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came);
        }
    }
    Ok(received.bytes)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
