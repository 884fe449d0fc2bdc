//! Connections to databases: to addresses that were checked, with certificates that are trusted.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::{DatabaseError, Session};
use crate::egress;
use crate::http::tls;

/// What a server may send for each byte of the answer: its own framing, and what is examined first.
const WIRE_FACTOR: usize = 4;
/// And at least so much.
const WIRE_BYTES_MIN: usize = 1 << 20;

/// The addresses of the session's database, each checked as any other egress is.
pub(super) async fn addresses(session: &Session) -> Result<Vec<SocketAddr>, DatabaseError> {
    let address = &session.grant.address;
    // What is not encrypted is held to the rules of plain HTTP: private addresses only.
    let scheme = if session.grant.rule.plain { "http" } else { "https" };
    let host = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
    let unreachable = |error: egress::EgressError| DatabaseError::Unreachable(error.to_string());
    let url = format!("{scheme}://{host}:{}/", address.port);
    let route = &session.route;
    let target = egress::target(&url, route.allow_private).map_err(unreachable)?;
    target.addresses(&route.resolver, route.allow_private).await.map_err(unreachable)
}

/// Connects to the first checked address that answers.
pub(super) async fn connect(session: &Session) -> Result<Capped, DatabaseError> {
    let deadline = Instant::now() + session.connect_within;
    let fail = |why: String| DatabaseError::Unreachable(format!("{}: {why}", session.grant.address.host));
    let late = || fail("no connection in time".to_owned());
    let found = timeout_at(deadline, addresses(session)).await.map_err(|_| late())??;
    let mut last = "no address".to_owned();
    for address in found {
        match timeout_at(deadline, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| fail(error.to_string()))?;
                let left = session.bytes_max.saturating_mul(WIRE_FACTOR).max(WIRE_BYTES_MIN);
                return Ok(Capped { stream, left });
            }
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => return Err(late()),
        }
    }
    Err(fail(last))
}

/// TLS with the roots that the policy names, else the public ones.
pub(super) async fn tls(session: &Session) -> Result<Arc<rustls::ClientConfig>, DatabaseError> {
    tls::other(session.route.ca.as_deref()).await.map_err(DatabaseError::NotSetUp)
}

/// A stream that ends once more came than an answer may have: one row can be a gigabyte.
pub(super) struct Capped {
    stream: TcpStream,
    left: usize,
}

impl AsyncRead for Capped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        match self.left.checked_sub(read) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Err(std::io::Error::other("the database sent more than an answer may have"))),
        }
        polled
    }
}

impl AsyncWrite for Capped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
