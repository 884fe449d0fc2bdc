//! One HTTP/1.1 exchange: connect, check, send once, and keep every byte that comes back.
//!
//! The bytes of an answer are taken off the (decrypted) stream before anything parses them and are
//! handed to a [`Witness`], which stores them. A request is sent at most once: there is no retry, no
//! pooled connection that could hide one, no redirect and no second address once a byte was written. Where a
//! lookup is sent on, that is another exchange: `lookup/hops.rs`.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use oncegate_contract::Request;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Instant;

use crate::causes::chain;
use crate::egress::{self, EgressError, Route};

mod connect;
mod framing;
mod raw;
mod tap;
pub(crate) mod tls;

pub(crate) use framing::joined;
pub use raw::{RawError, parse};
pub(crate) use raw::{date, written};
use tap::{Tap, Tapped};
pub use tls::probe_ca;

/// Bytes of an answer that are handed to the witness at once, at most (64 KiB less a little, since
/// values whose size is a power of two cost the ledger twice their size).
pub const EVIDENCE_CHUNK_BYTES: usize = 65_000;
/// How long a received byte may wait before it is handed to the witness.
pub const EVIDENCE_DELAY_MAX: Duration = Duration::from_millis(50);
/// How long the body of an answer whose headers have ended may take to follow, before the headers
/// are stored by themselves: a small whole answer then needs one commit and not two.
const HEAD_GRACE: Duration = Duration::from_millis(3);
/// Bytes read at once after the parser has given up.
const READ_BYTES: usize = 16 << 10;

/// Deadlines and caps of one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From the start of connecting to the end of the connection's set-up.
    pub connect: Duration,
    /// From the first byte sent to the last one received.
    pub total: Duration,
    /// Between two reads.
    pub idle: Duration,
    /// Bytes of an answer that are kept; more ends the exchange.
    pub answer_bytes_max: usize,
}

/// Who keeps what comes back, and has the last word before the first byte leaves.
#[async_trait::async_trait]
pub trait Witness: Send {
    /// Called after connecting and before the first byte; an error stops the exchange with nothing
    /// sent.
    async fn before_first_byte(&mut self) -> Result<(), String>;
    /// Called with received bytes in order; returns when they are durable. An error is kept by the
    /// witness; the exchange goes on, since the bytes are also in its result.
    async fn received(&mut self, offset: u64, bytes: &[u8]);
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The answer is whole.
    Complete,
    /// The connection closed before the answer was whole.
    Truncated,
    /// A deadline passed.
    TimedOut,
    /// The connection broke, or what came is not HTTP.
    Broken,
    /// The answer is larger than what is kept.
    TooLarge,
}

/// What one exchange came to.
#[derive(Debug)]
pub struct Exchange {
    /// Application bytes handed to the connection (to TLS, where there is TLS).
    pub sent_bytes: u64,
    /// The answer's bytes, as they came.
    pub raw: Vec<u8>,
    /// How many of them the witness was given already.
    pub witnessed: usize,
    /// How it ended.
    pub end: End,
    /// What broke, for the log and the operator.
    pub error: Option<String>,
}

impl Exchange {
    /// The status of the answer, as its first line has it.
    pub(crate) fn status(&self) -> Option<u16> {
        let digits = self.raw.strip_prefix(b"HTTP/1.")?.get(2..5)?;
        std::str::from_utf8(digits).ok()?.parse().ok().filter(|status| (100..1_000).contains(status))
    }
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    /// The target is refused or has no address.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// No connection could be made.
    #[error("no connection to {host}: {why}")]
    Connect {
        /// The host asked for.
        host: String,
        /// What failed.
        why: String,
    },
    /// The witness stopped it.
    #[error("stopped before the first byte: {0}")]
    Stopped(String),
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Request(String),
}

/// Sends `request` once and keeps the answer.
///
/// `secret_headers` are attached here and nowhere else; they are in no error and no log.
///
/// # Errors
/// [`NotSent`] when not one byte was handed to the connection. Whatever happens after the first
/// byte is an [`Exchange`].
pub async fn exchange(
    request: &Request,
    secret_headers: &[(String, http::HeaderValue)],
    route: &Route,
    patience: Patience,
    witness: &mut dyn Witness,
) -> Result<Exchange, NotSent> {
    let target = egress::target(&request.url, route.allow_private)?;
    let message = message(request, secret_headers, &target)?;
    let deadline = Instant::now() + patience.connect;
    let stream = connect::open(&target, route, deadline).await?;
    let tap = Arc::new(Mutex::new(Tap::new(patience.answer_bytes_max)));
    witness.before_first_byte().await.map_err(NotSent::Stopped)?;
    if target.tls {
        let stream = tls::secure(&target, route.ca.as_deref(), stream, deadline).await?;
        // The handshake took time: the fence and the deadline are looked at again.
        witness.before_first_byte().await.map_err(NotSent::Stopped)?;
        Ok(converse(Tapped::new(stream, tap.clone(), true), message, tap, patience, witness).await)
    } else {
        Ok(converse(Tapped::new(stream, tap.clone(), false), message, tap, patience, witness).await)
    }
}

type Message = hyper::Request<Full<Bytes>>;

fn message(
    request: &Request,
    secret_headers: &[(String, http::HeaderValue)],
    target: &egress::Target,
) -> Result<Message, NotSent> {
    let fail = |error: http::Error| NotSent::Request(error.to_string());
    let mut builder = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(target.path.as_str())
        .header(http::header::HOST, target.authority.as_str())
        .header(http::header::USER_AGENT, concat!("oncegate/", env!("CARGO_PKG_VERSION")))
        .header(http::header::ACCEPT_ENCODING, "identity")
        .header(http::header::CONNECTION, "close");
    for (name, value) in &request.headers {
        builder = builder.header(name.as_str(), value.as_str());
    }
    for (name, value) in secret_headers {
        // Of two headers of one name, each reader picks its own.
        if builder.headers_ref().is_some_and(|headers| headers.contains_key(name.as_str())) {
            return Err(NotSent::Request(format!("the header {name} would be there beside the credential's")));
        }
        builder = builder.header(name.as_str(), value.clone());
    }
    builder.body(Full::new(Bytes::from(request.body.clone()))).map_err(fail)
}

/// Sends the message and hands the witness what comes, until the answer is whole or a limit ends it.
async fn converse<S>(
    stream: Tapped<S>,
    message: Message,
    tap: Arc<Mutex<Tap>>,
    patience: Patience,
    witness: &mut dyn Witness,
) -> Exchange
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let started = Instant::now();
    let drive = drive(stream, message);
    tokio::pin!(drive);
    let mut witnessed = 0;
    let (end, error) = loop {
        let wait = next_wait(&tap, started, patience, witnessed);
        tokio::select! {
            biased;
            ended = &mut drive => break ended,
            () = tokio::time::sleep_until(wait.until) => {}
            () = wait.arrival.notified() => {}
        }
        if let Some(ended) = out_of_patience(&tap, started, patience) {
            break ended;
        }
        if let Some(chunk) = due(&tap, witnessed) {
            witness.received(witnessed as u64, &chunk).await;
            witnessed += chunk.len();
        }
    };
    let mut tap = lock(&tap);
    let (end, error) =
        if tap.overflowed { (End::TooLarge, Some("the answer is too large to keep".to_owned())) } else { (end, error) };
    Exchange { sent_bytes: tap.sent, raw: std::mem::take(&mut tap.raw), witnessed, end, error }
}

/// Drives one request and its whole answer; the bytes are kept by the tap below it.
async fn drive<S>(stream: Tapped<S>, message: Message) -> (End, Option<String>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, mut connection) = match http1::handshake(TokioIo::new(stream)).await {
        Ok(pair) => pair,
        Err(error) => return (End::Broken, Some(error.to_string())),
    };
    let exchange = async {
        let answer = sender.send_request(message).await?;
        answer.into_body().collect().await.map(drop)
    };
    tokio::pin!(exchange);
    let mut open = true;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut exchange => break ended,
            _ = poll_fn(|cx| connection.poll_without_shutdown(cx)), if open => open = false,
        }
    };
    let Err(error) = ended else { return (End::Complete, None) };
    let end = if is_cut(&error) { End::Truncated } else { End::Broken };
    // The parser gave up; what still comes is evidence all the same, until a limit ends it.
    read_on(connection.into_parts().io.into_inner()).await;
    (end, Some(chain(&error)))
}

/// Whether the connection ended before the message did.
fn is_cut(error: &hyper::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = error.source();
    }
    error.is_incomplete_message()
}

/// Reads to the end for the tap below, which keeps what there is to keep.
async fn read_on<S: AsyncRead + Unpin>(mut stream: S) {
    let mut scratch = vec![0; READ_BYTES];
    while matches!(stream.read(&mut scratch).await, Ok(read) if read > 0) {}
}

struct Wait {
    until: Instant,
    arrival: Arc<tokio::sync::Notify>,
}

fn next_wait(tap: &Mutex<Tap>, started: Instant, patience: Patience, witnessed: usize) -> Wait {
    let tap = lock(tap);
    let last = tap.last_read.unwrap_or(started);
    let mut until = (started + patience.total).min(last + patience.idle);
    if let Some(first) = tap.first_unwitnessed(witnessed) {
        until = until.min(first + delay(&tap, witnessed));
    }
    Wait { until, arrival: tap.arrival.clone() }
}

fn delay(tap: &Tap, witnessed: usize) -> Duration {
    let head_only = witnessed == 0 && tap.head_ended();
    if head_only { HEAD_GRACE } else { EVIDENCE_DELAY_MAX }
}

fn out_of_patience(tap: &Mutex<Tap>, started: Instant, patience: Patience) -> Option<(End, Option<String>)> {
    let tap = lock(tap);
    let now = Instant::now();
    let last = tap.last_read.unwrap_or(started);
    if tap.overflowed {
        return Some((End::TooLarge, None));
    }
    if now >= started + patience.total {
        return Some((End::TimedOut, Some("no whole answer in time".to_owned())));
    }
    (now >= last + patience.idle).then(|| (End::TimedOut, Some("the provider went silent".to_owned())))
}

/// The bytes that are due to be stored: a whole chunk, or all there are once they have waited.
fn due(tap: &Mutex<Tap>, witnessed: usize) -> Option<Vec<u8>> {
    let mut tap = lock(tap);
    let waiting = tap.raw.get(witnessed..)?;
    let first = tap.first_unwitnessed(witnessed)?;
    let old = Instant::now() >= first + delay(&tap, witnessed);
    if waiting.len() < EVIDENCE_CHUNK_BYTES && !old {
        return None;
    }
    let chunk = waiting[..waiting.len().min(EVIDENCE_CHUNK_BYTES)].to_vec();
    tap.witnessed_to(witnessed + chunk.len());
    Some(chunk)
}

fn lock(tap: &Mutex<Tap>) -> std::sync::MutexGuard<'_, Tap> {
    tap.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
