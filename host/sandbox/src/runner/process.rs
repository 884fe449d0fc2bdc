//! Starting runner processes and ending them, on a thread that lives as long as they may.
//!
//! The system ends a runner when the thread that started it ends; a thread of an async runtime may end at any time.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::frames::{self, FROM_RUNNER_BYTES_MAX, FromRunner};
use super::wire::Incoming;
use crate::isolation::{Examined, IsolationError, Program, Walls};

/// How long a process may take to wall itself off: milliseconds, on a machine that has time.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How often a process that was killed is looked for until it is gone.
const REAP_EVERY: Duration = Duration::from_millis(20);
/// Lines of `/proc/PID/status` that say what walls there are.
const STATUS: [&str; 4] = ["Seccomp", "NoNewPrivs", "CapEff", "CoreDumping"];

type Begun = (Child, UnixStream, Walls, u32);
type Reply = Box<dyn FnOnce(Result<Begun, IsolationError>) + Send>;

enum Order {
    Start(Reply),
    End(Child),
}

/// Starts runners.
#[derive(Clone)]
pub(super) struct Starter(Sender<Order>);

/// A runner that has walled itself off.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) socket: UnixStream,
    pub(super) walls: Walls,
    /// Calls that it holds at once.
    pub(super) slots: u32,
}

/// A process; it is ended when this is dropped.
pub(super) struct Process {
    child: Option<Child>,
    orders: Sender<Order>,
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        if let Err(mpsc::SendError(Order::End(mut child))) = self.orders.send(Order::End(child)) {
            // The thread has gone, and with it goes what it started.
            let _ = child.kill();
        }
    }
}

impl Starter {
    pub(super) fn new(program: Program) -> Result<Self, IsolationError> {
        let (orders, taken) = mpsc::channel();
        let work = move || work(&program, &taken);
        std::thread::Builder::new().name("oncegate-runners".to_owned()).spawn(work).map_err(IsolationError::Start)?;
        Ok(Self(orders))
    }

    /// Starts a runner, for a caller that waits by itself.
    pub(super) fn start_now(&self) -> Result<Started, IsolationError> {
        self.begin()?.recv().map_err(|_| gone())?
    }

    /// Starts a runner, for a caller that does something else meanwhile.
    pub(super) fn begin(&self) -> Result<Receiver<Result<Started, IsolationError>>, IsolationError> {
        let (sender, started) = mpsc::channel();
        self.order(move |result| drop(sender.send(result)))?;
        Ok(started)
    }

    /// Starts a runner.
    pub(super) async fn start(&self) -> Result<Started, IsolationError> {
        let (sender, started) = tokio::sync::oneshot::channel();
        self.order(move |result| drop(sender.send(result)))?;
        started.await.map_err(|_| gone())?
    }

    fn order(
        &self,
        reply: impl FnOnce(Result<Started, IsolationError>) + Send + 'static,
    ) -> Result<(), IsolationError> {
        let orders = self.0.clone();
        // What nobody waits for any more is dropped, and so ended.
        let reply: Reply = Box::new(move |result| {
            reply(result.map(|(child, socket, walls, slots)| Started {
                process: Process { child: Some(child), orders },
                socket,
                walls,
                slots,
            }));
        });
        self.0.send(Order::Start(reply)).map_err(|_| gone())
    }
}

fn gone() -> IsolationError {
    IsolationError::Began("the thread that starts it has gone".to_owned())
}

fn work(program: &Program, orders: &Receiver<Order>) {
    let mut dying: Vec<Child> = Vec::new();
    loop {
        let order = if dying.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(REAP_EVERY)
        };
        match order {
            Ok(Order::Start(reply)) => reply(start(program)),
            Ok(Order::End(mut child)) => {
                let _ = child.kill();
                dying.push(child);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        dying.retain_mut(still_there);
    }
}

fn still_there(child: &mut Child) -> bool {
    match child.try_wait() {
        Ok(Some(status)) => {
            tracing::debug!(pid = child.id(), %status, "a process for guests ended");
            false
        }
        Ok(None) => true,
        Err(_) => false,
    }
}

fn start(program: &Program) -> Result<Begun, IsolationError> {
    let (socket, theirs) = UnixStream::pair().map_err(IsolationError::Start)?;
    let mut command = Command::new(&program.path);
    command.arg0("oncegate-runner").args(&program.runner).env_clear().current_dir("/");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(IsolationError::Start)?;
    // This process's copy of the other end, or the end of the runner would not be seen.
    drop(command);
    match begun(&socket) {
        Ok((walls, slots)) => Ok((child, socket, walls, slots)),
        Err(error) => {
            let _ = child.kill();
            let status = child.wait().map_err(IsolationError::Start)?;
            tracing::warn!(%status, "a process for guests did not begin");
            Err(error)
        }
    }
}

fn begun(socket: &UnixStream) -> Result<(Walls, u32), IsolationError> {
    socket.set_read_timeout(Some(START_WITHIN)).map_err(IsolationError::Start)?;
    match hear(socket)? {
        FromRunner::Ready(walls, slots) => Ok((walls, slots)),
        FromRunner::Unfit(why) => Err(IsolationError::Walls(why)),
        _ => Err(IsolationError::Began("it spoke out of turn".to_owned())),
    }
}

/// The next thing that a runner says to somebody who waits for nothing else.
fn hear(mut socket: &UnixStream) -> Result<FromRunner, IsolationError> {
    let wrong = |error: &dyn std::fmt::Display| IsolationError::Began(error.to_string());
    let mut incoming = Incoming::new(FROM_RUNNER_BYTES_MAX);
    loop {
        if let Some(frame) = incoming.frame().map_err(|error| wrong(&error))? {
            return frames::read_from_runner(frame).map_err(|error| wrong(&error));
        }
        match socket.read(incoming.room()).map_err(|error| wrong(&error))? {
            0 => return Err(wrong(&"it ended at once")),
            count => incoming.came(count),
        }
    }
}

/// Starts a runner and has it try what it must not be able to do.
pub(crate) fn examine(program: &Program) -> Result<Examined, IsolationError> {
    let Started { process, socket, walls, .. } = Starter::new(program.clone())?.start_now()?;
    (&socket).write_all(&frames::attempt_all()).map_err(IsolationError::Start)?;
    let FromRunner::Tried(attempts) = hear(&socket)? else {
        return Err(IsolationError::Began("it did not say what it tried".to_owned()));
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let status = status.lines().filter_map(|line| line.split_once(':'));
    let status = status.filter(|(name, _)| STATUS.contains(name));
    let status = status.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    Ok(Examined { walls, attempts, status })
}
