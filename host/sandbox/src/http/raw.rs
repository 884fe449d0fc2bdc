//! Reads a stored answer again: the same parser as on the wire, fed from memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use oncegate_contract::Answer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing;

/// Stored bytes that are not an HTTP/1.1 answer.
#[derive(Debug, thiserror::Error)]
#[error("the stored bytes are not a whole HTTP/1.1 answer: {0}")]
pub struct RawError(String);

/// Parses the bytes of an answer to a request of `method`.
///
/// `complete` says whether the exchange that brought them ended by itself; a body without a length
/// ends with the connection, so the bytes alone cannot tell. Of an answer that did not, what came of
/// the body is given: it may hold the one copy of something.
///
/// # Errors
/// [`RawError`] when there is no status line and headers, or the framing is broken or can be read in two ways.
pub async fn parse(method: &str, raw: &[u8], complete: bool) -> Result<Answer, RawError> {
    if let Some(why) = framing::odd(method, raw) {
        return Err(RawError(why.to_owned()));
    }
    let fail = |error: hyper::Error| RawError(error.to_string());
    let stored = Stored { bytes: Bytes::copy_from_slice(raw), asked: false };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stored)).await.map_err(fail)?;
    let request = hyper::Request::builder()
        .method(method)
        .uri("/")
        .body(Empty::<Bytes>::new())
        .map_err(|error| RawError(error.to_string()))?;
    let read = async {
        let answer = sender.send_request(request).await?;
        let (head, mut body) = answer.into_parts();
        let mut came = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => came.extend(frame.data_ref().into_iter().flatten()),
                Err(_) if !complete => break,
                Err(error) => return Err(error),
            }
        }
        Ok((head, came))
    };
    tokio::pin!(read);
    tokio::pin!(connection);
    let mut open = true;
    let (head, body) = loop {
        tokio::select! {
            biased;
            done = &mut read => break done.map_err(fail)?,
            _ = &mut connection, if open => open = false,
        }
    };
    let headers =
        head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    Ok(Answer { status: head.status.as_u16(), headers, body, complete })
}

/// An answer's bytes anew, with its body in one piece: what [`parse`] reads as this answer.
pub(crate) fn written(answer: &Answer) -> Vec<u8> {
    let framing = ["content-length", "transfer-encoding", "connection", "trailer"];
    let mut raw = format!("HTTP/1.1 {}\r\n", answer.status).into_bytes();
    for (name, value) in answer.headers.iter().filter(|(name, _)| !framing.contains(&name.as_str())) {
        raw.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    raw.extend(format!("content-length: {}\r\n\r\n", answer.body.len()).into_bytes());
    raw.extend(&answer.body);
    raw
}

/// A connection whose far side has already said everything.
struct Stored {
    bytes: Bytes,
    asked: bool,
}

impl AsyncRead for Stored {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if !self.asked {
            // An answer before the request would be taken for garbage.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let part = self.bytes.len().min(buf.remaining());
        buf.put_slice(&self.bytes.split_to(part));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stored {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The answer's `Date` in milliseconds since the Unix epoch, if it has one that can be read.
pub(crate) fn date(answer: &Answer) -> Option<u64> {
    let (_, value) = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    let text = std::str::from_utf8(value).ok()?;
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    u64::try_from(date.as_millisecond()).ok()
}
