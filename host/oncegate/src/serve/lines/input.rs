//! Standard input, a line at a time.
//!
//! A pipe or a socket is read by whoever waits for its next line: a thread between would cost each message two more
//! wake-ups. Anything else, such as a file or a terminal, is read by a thread of its own, which may block for ever.

use oncegate::frame::{self, Line};
use tokio::sync::mpsc;

/// Lines between the thread and the rest.
const LINES_QUEUED: usize = 64;

/// Where lines come from.
pub(super) enum Input {
    #[cfg(target_os = "linux")]
    Direct(Box<direct::Direct>),
    Thread(mpsc::Receiver<Line>),
}

impl Input {
    /// The process's own.
    pub(super) fn open() -> Self {
        #[cfg(target_os = "linux")]
        if let Some(direct) = direct::Direct::open() {
            return Self::Direct(Box::new(direct));
        }
        Self::thread()
    }

    fn thread() -> Self {
        let (sender, lines) = mpsc::channel(LINES_QUEUED);
        std::thread::spawn(move || frame::read(std::io::stdin().lock(), |line| sender.blocking_send(line).is_ok()));
        Self::Thread(lines)
    }

    /// The next line; none at the end. Nothing is lost when nobody waits for it any more.
    pub(super) async fn line(&mut self) -> Option<Line> {
        #[cfg(target_os = "linux")]
        if let Self::Direct(direct) = self {
            match direct.line().await {
                Ok(line) => return line,
                // Nothing of it was read yet.
                Err(direct::CannotBeHad) => *self = Self::thread(),
            }
        }
        match self {
            Self::Thread(lines) => lines.recv().await,
            #[cfg(target_os = "linux")]
            Self::Direct(_) => None,
        }
    }
}

#[cfg(target_os = "linux")]
mod direct {
    use std::io::{self, IoSliceMut};
    use std::os::fd::AsFd;

    use oncegate::frame::{Cutter, Line};
    use rustix::fs::FileType;
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use tokio::net::unix::pipe;

    /// Bytes that are read at once: what a pipe holds.
    const PIECE_BYTES: usize = 64 << 10;

    /// A pipe or socket that is read when there is something in it. Its mode stays as it is, blocking: others may
    /// have the same end of it.
    pub(in super::super) struct Direct {
        stdin: pipe::Receiver,
        piece: Vec<u8>,
        cutter: Cutter,
        ended: bool,
    }

    /// The system cannot read it without blocking.
    pub(super) struct CannotBeHad;

    impl Direct {
        pub(super) fn open() -> Option<Self> {
            let stdin = rustix::stdio::stdin();
            let kind = FileType::from_raw_mode(rustix::fs::fstat(stdin).ok()?.st_mode);
            if !matches!(kind, FileType::Fifo | FileType::Socket) {
                return None;
            }
            // A second name of the same end; it is told of what comes as that of a pipe is, whatever it is.
            let stdin = pipe::Receiver::from_owned_fd_unchecked(stdin.try_clone_to_owned().ok()?).ok()?;
            Some(Self { stdin, piece: vec![0; PIECE_BYTES], cutter: Cutter::default(), ended: false })
        }

        pub(super) async fn line(&mut self) -> Result<Option<Line>, CannotBeHad> {
            loop {
                if let Some(line) = self.cutter.line() {
                    return Ok(Some(line));
                }
                if self.ended {
                    return Ok(std::mem::take(&mut self.cutter).end());
                }
                match self.read().await {
                    Ok(count) => {
                        self.ended = count == 0;
                        self.cutter.push(self.piece.get(..count).unwrap_or_default());
                    }
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(CannotBeHad),
                    Err(_) => self.ended = true,
                }
            }
        }

        async fn read(&mut self) -> io::Result<usize> {
            loop {
                self.stdin.readable().await?;
                let stdin = &self.stdin;
                match stdin.try_io(|| read_now(stdin, &mut self.piece)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
        }
    }

    fn read_now(stdin: impl AsFd, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            match preadv2(&stdin, &mut [IoSliceMut::new(piece)], u64::MAX, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Err(io::ErrorKind::Unsupported.into()),
                read => return Ok(read?),
            }
        }
    }
}
