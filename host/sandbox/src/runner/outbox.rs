//! Frames on their way out of a process: sent at once where the socket takes them, else kept in order, bounded.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// Bytes that wait for a process that does not read. It reads all the time, unless something is wrong with it.
const WAITING_BYTES_MAX: usize = 512 << 20;

/// One end of a socket, for sending.
pub(super) struct Outbox {
    pub(super) socket: UnixStream,
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    parts: VecDeque<Part>,
    bytes: usize,
}

struct Part {
    bytes: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    file: Option<Arc<OwnedFd>>,
}

impl Outbox {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, waiting: Mutex::default(), more: Notify::new() }
    }

    /// Sends a frame behind those that were sent before.
    ///
    /// # Errors
    /// The other end is gone or does not read.
    pub(super) fn send(&self, frame: Vec<u8>, file: Option<Arc<OwnedFd>>) -> io::Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes += frame.len();
        if waiting.bytes > WAITING_BYTES_MAX {
            return Err(io::Error::other("it does not read"));
        }
        waiting.parts.push_back(Part { bytes: frame, sent: 0, file });
        if waiting.parts.len() == 1 {
            self.send_waiting(&mut waiting)?;
        }
        if !waiting.parts.is_empty() {
            self.more.notify_one();
        }
        Ok(())
    }

    /// Sends what waits, for as long as both ends live. One task does this.
    pub(super) async fn send_the_rest(&self) -> io::Result<()> {
        loop {
            self.more.notified().await;
            while !self.is_empty() {
                self.socket.writable().await?;
                self.send_waiting(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))?;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).parts.is_empty()
    }

    fn send_waiting(&self, waiting: &mut Waiting) -> io::Result<()> {
        while let Some(part) = waiting.parts.front_mut() {
            match self.socket.try_io(Interest::WRITABLE, || send_part(&self.socket, part)) {
                Ok(count) => {
                    part.file = None;
                    part.sent += count;
                    waiting.bytes = waiting.bytes.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if part.sent == part.bytes.len() {
                waiting.parts.pop_front();
            }
        }
        Ok(())
    }
}

fn send_part(socket: &UnixStream, part: &Part) -> io::Result<usize> {
    let files = part.file.as_ref().map(|file| [file.as_fd()]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files
        && !with.push(SendAncillaryMessage::ScmRights(files))
    {
        return Err(io::Error::other("there is no room for a file"));
    }
    let bytes = [IoSlice::new(&part.bytes[part.sent..])];
    Ok(sendmsg(socket, &bytes, &mut with, SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_go_in_order_past_a_full_socket() {
        use tokio::io::AsyncReadExt;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let outbox = Arc::new(Outbox::new(ours));
        let rest = Arc::clone(&outbox);
        let rest = tokio::spawn(async move { rest.send_the_rest().await });
        for number in 0..200_u8 {
            outbox.send(vec![number; 10_000], None).unwrap();
        }
        let mut bytes = vec![0; 200 * 10_000];
        theirs.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.chunks(10_000).zip(0..).all(|(frame, number)| frame.iter().all(|byte| *byte == number)));
        drop(theirs);
        assert!(outbox.send(vec![0], None).is_err());
        rest.abort();
    }

    #[tokio::test]
    async fn whoever_does_not_read_is_given_up() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(ours);
        let frame = || vec![0; 64 << 20];
        let sent = (0..10).map_while(|_| outbox.send(frame(), None).ok()).count();
        assert!((7..=8).contains(&sent), "{sent}");
    }
}
