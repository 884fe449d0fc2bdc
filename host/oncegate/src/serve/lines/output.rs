//! Standard output, whole lines in any order.
//!
//! A line goes out at once where the client's end takes it. What does not fit waits for a thread of its own, so that a
//! client that neither reads nor closes holds up nobody but itself; lines behind it wait too.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

/// Lines that wait for the thread.
const LINES_QUEUED: usize = 64;

/// A line, or the rest of one, that waits; it counts as waiting until it is written.
type Waiting = (Vec<u8>, Arc<()>);

/// The process's own standard output.
pub(super) struct Output {
    queue: mpsc::Sender<Waiting>,
    state: Mutex<State>,
}

struct State {
    /// Held by every line that waits: while one does, no other goes past it.
    waiting: Arc<()>,
    /// Whether lines can go out at once.
    direct: bool,
}

impl Output {
    /// Opens it; the receiver hears when all is written and nothing more comes.
    pub(super) fn open() -> (Arc<Self>, oneshot::Receiver<()>) {
        let (queue, lines) = mpsc::channel(LINES_QUEUED);
        let (done, written) = oneshot::channel();
        std::thread::spawn(move || {
            write(lines);
            // Nobody waits when the process ends by a signal.
            let _ = done.send(());
        });
        let state = Mutex::new(State { waiting: Arc::default(), direct: cfg!(target_os = "linux") });
        (Arc::new(Self { queue, state }), written)
    }

    /// Writes a line as far as it goes out at once; what has to be waited for is given back.
    ///
    /// # Errors
    /// Nobody reads.
    pub(super) fn write_now(&self, line: Vec<u8>) -> io::Result<Option<Rest>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = Arc::clone(&state.waiting);
        // The state's own and this one: nothing waits.
        if !state.direct || Arc::strong_count(&waiting) > 2 {
            return Ok(Some(Rest((line, waiting))));
        }
        match write_some(&line) {
            Ok(count) if count == line.len() => return Ok(None),
            Ok(0) => return Ok(Some(Rest((line, waiting)))),
            // The rest of a line that has begun goes before all others. There is room: nothing waits.
            Ok(count) => {
                let rest = line.get(count..).unwrap_or_default().to_vec();
                return self.queue.try_send((rest, waiting)).map(|()| None).map_err(|_| closed());
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => state.direct = false,
            Err(error) => return Err(error),
        }
        Ok(Some(Rest((line, waiting))))
    }

    /// Waits until there is room for it in the queue.
    ///
    /// # Errors
    /// Nobody reads.
    pub(super) async fn write(&self, Rest(line): Rest) -> io::Result<()> {
        self.queue.send(line).await.map_err(|_| closed())
    }
}

/// A line that could not go out at once.
pub(super) struct Rest(Waiting);

pub(super) fn closed() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

#[cfg(target_os = "linux")]
fn write_some(line: &[u8]) -> io::Result<usize> {
    use rustix::io::{Errno, ReadWriteFlags, pwritev2};
    loop {
        match pwritev2(io::stdout(), &[io::IoSlice::new(line)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Err(io::ErrorKind::Unsupported.into()),
            written => return Ok(written?),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn write_some(_: &[u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

fn write(mut lines: mpsc::Receiver<Waiting>) {
    let mut out = io::stdout().lock();
    while let Some((line, _waiting)) = lines.blocking_recv() {
        // A client that closed its end has read enough; requests end with the input.
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
