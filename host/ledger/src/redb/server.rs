//! The socket beside the ledger, where other processes hand in their appends.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::committer::Queue;
use super::files;
use super::protocol::{self, Answered, Forgot, PROTOCOL, Reply, Request};
use super::reads::Reads;
use super::store::Op;
use crate::{LedgerError, hex};

/// Other processes served at once; more than anybody runs on one machine.
const CONNECTIONS_MAX: usize = 64;
/// After a connection that could not be accepted.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// A Unix socket's path must be shorter than 108 bytes.
const SOCKET_PATH_MAX: usize = 100;

pub(super) fn socket_path(ledger: &Path) -> PathBuf {
    files::beside(ledger, "sock")
}

/// Connects to the owner.
pub(super) fn connect(ledger: &Path) -> io::Result<UnixStream> {
    let (short, _directory) = short_path(&socket_path(ledger))?;
    UnixStream::connect(short)
}

/// A name of the same file that fits into a socket address: through its open directory.
fn short_path(path: &Path) -> io::Result<(PathBuf, Option<std::fs::File>)> {
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let directory = std::fs::File::open(files::parent(path))?;
    let name = path.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((short, Some(directory)))
}

struct Inner {
    id: [u8; 16],
    queue: Queue,
    reads: Arc<Reads>,
    stopping: AtomicBool,
    streams: Mutex<Vec<(u64, UnixStream)>>,
}

/// The listening socket.
pub(super) struct Server {
    inner: Arc<Inner>,
    path: PathBuf,
    ledger: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(ledger: &Path, id: [u8; 16], queue: Queue, reads: Arc<Reads>) -> Result<Server, LedgerError> {
        let path = socket_path(ledger);
        let failed = |error: &io::Error| LedgerError::io(format!("listening at {}", path.display()), error);
        let listener = bind(ledger, &path).map_err(|error| failed(&error))?;
        let inner = Arc::new(Inner { id, queue, reads, stopping: AtomicBool::new(false), streams: Mutex::default() });
        let served = Arc::clone(&inner);
        let thread = std::thread::Builder::new()
            .name("oncegate-ledger-socket".to_owned())
            .spawn(move || served.listen(&listener))
            .map_err(|error| failed(&error))?;
        Ok(Server { inner, path, ledger: ledger.to_owned(), thread: Some(thread) })
    }

    pub(super) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.inner.stopping.store(true, Ordering::SeqCst);
        // Wakes the listener; when even that fails it is left behind rather than waited for.
        let woken = connect(&self.ledger).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if woken {
            let _ = thread.join();
        }
        for (_, stream) in self.inner.streams().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The socket is made in a private directory and gets its name when only its owner can connect.
fn bind(ledger: &Path, path: &Path) -> io::Result<UnixListener> {
    let directory = files::beside(ledger, "hosts");
    files::private_directory(&directory)?;
    let temporary = directory.join(format!("{}.sock", hex(&rand::random::<[u8; 8]>())));
    let (short, _open) = short_path(&temporary)?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path)?;
    Ok(listener)
}

impl Inner {
    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<(u64, UnixStream)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: Arc<Self>, listener: &UnixListener) {
        for (number, stream) in (0..).zip(listener.incoming()) {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else {
                std::thread::sleep(ACCEPT_PAUSE); // Out of descriptors, most likely.
                continue;
            };
            let Ok(kept) = stream.try_clone() else {
                continue;
            };
            let mut streams = self.streams();
            if streams.len() >= CONNECTIONS_MAX {
                continue;
            }
            streams.push((number, kept));
            drop(streams);
            let inner = Arc::clone(&self);
            // Without a thread the stream is dropped and the client tries again.
            let _ = std::thread::Builder::new().name("oncegate-ledger-client".to_owned()).spawn(move || {
                if let Err(error) = inner.serve(stream) {
                    tracing::debug!(%error, "a ledger client left");
                }
                inner.streams().retain(|(kept, _)| *kept != number);
            });
        }
    }

    /// Reads requests until the client leaves. Replies go through a thread of their own: a client
    /// that does not read must not hold up the committer.
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut to = stream.try_clone()?;
        let (replies, outgoing) = channel::<Answered>();
        let writer = std::thread::Builder::new().name("oncegate-ledger-replies".to_owned()).spawn(move || {
            for reply in outgoing {
                if protocol::send(&mut to, &reply).is_err() {
                    let _ = to.shutdown(Shutdown::Both);
                    return;
                }
            }
        })?;
        let served = loop {
            match protocol::receive(&mut stream) {
                Ok((number, request)) => self.request(number, request, &replies),
                Err(error) => break error,
            }
        };
        drop(replies);
        let _ = stream.shutdown(Shutdown::Both);
        let _ = writer.join();
        Err(served)
    }

    fn request(&self, number: u64, request: Request, replies: &Sender<Answered>) {
        let answer = match request {
            Request::Append { batch, nonce, again } => {
                let replies = replies.clone();
                let reads = Arc::clone(&self.reads);
                reads.foreign.begins();
                let reply = move |outcome: Result<Vec<u64>, LedgerError>| {
                    reads.foreign.ends();
                    drop(replies.send((number, outcome.map(Reply::Versions))));
                };
                match Op::new(batch, Some(nonce), again) {
                    Ok(op) => return self.queue.submit(op, Box::new(reply)),
                    Err(error) => Err(error),
                }
            }
            Request::Forget { streams } => {
                let replies = replies.clone();
                let reply = move |outcome: Result<Forgot, LedgerError>| {
                    drop(replies.send((number, outcome.map(Reply::Forgot))));
                };
                return self.queue.forget(streams, Box::new(reply));
            }
            Request::Hello { protocol: PROTOCOL } => Ok(Reply::Hello { id: self.id }),
            Request::Hello { protocol } => Err(LedgerError::Newer {
                at: "owner".to_owned(),
                why: format!("its process speaks protocol {PROTOCOL}, this one {protocol}"),
            }),
            question => self.reads.answer(&question),
        };
        // A client that has left hears nothing.
        let _ = replies.send((number, answer));
    }
}
