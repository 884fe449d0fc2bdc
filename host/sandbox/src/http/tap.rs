//! A stream that keeps what is read from it and counts what is written to it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What has passed through a connection.
pub(super) struct Tap {
    /// Every byte read, in order.
    pub(super) raw: Vec<u8>,
    /// Application bytes that the connection has taken for sending.
    pub(super) sent: u64,
    /// When the last bytes came.
    pub(super) last_read: Option<Instant>,
    /// True once more came than is kept.
    pub(super) overflowed: bool,
    /// Told at each arrival.
    pub(super) arrival: Arc<Notify>,
    waiting_since: Option<Instant>,
    head_ended: bool,
    max: usize,
}

impl Tap {
    pub(super) fn new(max: usize) -> Self {
        Self {
            raw: Vec::new(),
            sent: 0,
            last_read: None,
            overflowed: false,
            arrival: Arc::new(Notify::new()),
            waiting_since: None,
            head_ended: false,
            max,
        }
    }

    /// When the oldest byte came that the witness does not have yet.
    pub(super) fn first_unwitnessed(&self, witnessed: usize) -> Option<Instant> {
        if self.raw.len() > witnessed { self.waiting_since } else { None }
    }

    /// True once the blank line after the headers has come.
    pub(super) fn head_ended(&self) -> bool {
        self.head_ended
    }

    /// Notes that the witness has all bytes before `offset`.
    pub(super) fn witnessed_to(&mut self, offset: usize) {
        if offset >= self.raw.len() {
            self.waiting_since = None;
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        let room = self.max.saturating_sub(self.raw.len());
        self.overflowed |= bytes.len() > room;
        let from = self.raw.len().saturating_sub(3);
        self.raw.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.head_ended = self.head_ended || self.raw[from..].windows(4).any(|window| window == b"\r\n\r\n");
        self.last_read = Some(now);
        self.waiting_since.get_or_insert(now);
        self.arrival.notify_one();
    }
}

/// The connection with its tap.
pub(super) struct Tapped<S> {
    stream: S,
    tap: Arc<Mutex<Tap>>,
    tls: bool,
}

impl<S> Tapped<S> {
    pub(super) fn new(stream: S, tap: Arc<Mutex<Tap>>, tls: bool) -> Self {
        Self { stream, tap, tls }
    }

    /// A failed write through TLS may have sent records before it failed; without TLS it sent nothing.
    fn count(&self, offered: usize, poll: &Poll<std::io::Result<usize>>) {
        let sent = match poll {
            Poll::Ready(Ok(taken)) => *taken,
            Poll::Ready(Err(_)) if self.tls => offered,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.tap.lock().unwrap_or_else(PoisonError::into_inner).sent += sent as u64;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tapped<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(bytes) = buf.filled().get(before..).filter(|bytes| !bytes.is_empty()) {
            let mut tap = self.tap.lock().unwrap_or_else(PoisonError::into_inner);
            tap.keep(bytes);
            if tap.overflowed {
                return Poll::Ready(Err(std::io::Error::other("the answer is too large to keep")));
            }
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(bytes.len(), &poll);
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
