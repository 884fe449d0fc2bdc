//! Writes an answer, or spoils it the way its mode says.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use super::http::Reply;
use super::mode::Mode;

/// A hanging connection ends when the peer closes it, at the latest now.
const HANG_MAX: Duration = Duration::from_secs(15 * 60);
/// `slow` writes a piece each time.
const SLOW_PAUSE: Duration = Duration::from_millis(100);
const SLOW_PIECES: usize = 20;
/// What `big-20mb` adds.
const BIG_BYTES: usize = 20 << 20;

/// What a mode answers that stops a request before anything happened.
pub(super) fn refusal(mode: Mode) -> Reply {
    match mode {
        Mode::Error503Before => Reply::error(503, "unavailable", "try again later"),
        Mode::Error429Before => Reply::error(429, "rate_limited", "too many requests"),
        _ => Reply::error(402, "card_declined", "the card was declined"),
    }
}

/// Ends a connection of which the request was not read; always the last thing on it.
pub(super) fn spoil_unread(stream: &TcpStream, mode: Mode) -> io::Result<bool> {
    if mode == Mode::ResetBefore {
        reset(stream)?;
    } else {
        // Reading would make room for the peer's bytes, so this one only waits.
        wait_for_close(stream, |stream| stream.peek(&mut [0]).is_ok_and(|n| n > 0));
    }
    Ok(true)
}

/// Writes the right answer.
pub(super) fn write_clean(mut stream: &TcpStream, reply: &Reply) -> io::Result<()> {
    let mut bytes = reply.head(Some(reply.body.len()));
    bytes.extend(&reply.body);
    stream.write_all(&bytes)
}

/// Writes what a mode makes of an answer; true when the connection is over.
pub(super) fn write(mut stream: &TcpStream, reply: &Reply, mode: Mode, head_only: bool) -> io::Result<bool> {
    match mode {
        Mode::HangBefore | Mode::CompleteThenHang => hang(stream),
        Mode::CompleteThenReset => reset(stream)?,
        Mode::Truncated => {
            stream.write_all(&reply.head(Some(reply.body.len())))?;
            stream.write_all(&reply.body[..reply.body.len() / 2])?;
            stream.shutdown(Shutdown::Both)?;
        }
        Mode::ResetAfterHeaders => {
            stream.write_all(&reply.head(Some(reply.body.len())))?;
            // Else the reset may overtake the head in the peer's kernel.
            thread::sleep(SLOW_PAUSE);
            reset(stream)?;
        }
        Mode::HeldOpen => {
            stream.write_all(&reply.head(None))?;
            stream.write_all(format!("{:x}\r\n", reply.body.len()).as_bytes())?;
            stream.write_all(&reply.body)?;
            stream.write_all(b"\r\n")?;
            hang(stream);
        }
        Mode::Slow => {
            write_slowly(stream, reply)?;
            return Ok(false);
        }
        _ if head_only => {
            stream.write_all(&reply.head(Some(reply.body.len())))?;
            return Ok(false);
        }
        _ => {
            write_clean(stream, &changed(reply, mode))?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// The answer of a mode that only changes status or body.
fn changed(reply: &Reply, mode: Mode) -> Reply {
    match mode {
        Mode::Error500After => Reply::error(500, "internal", "something broke"),
        Mode::Error429After => Reply::error(429, "rate_limited", "too many requests"),
        Mode::Garbage => with_body(reply, b"<html><body>It works!</body></html>".to_vec()),
        Mode::NonUtf8 => with_body(reply, b"{\"id\":\"\xff\xfe\xc3\x28\"}".to_vec()),
        Mode::Big20Mb => {
            // Inside the object, so that a reader which stops early has no whole document.
            let mut body = b"{\"padding\":\"".to_vec();
            body.resize(body.len() + BIG_BYTES, b'x');
            body.extend(b"\",");
            body.extend(reply.body.iter().skip(1));
            with_body(reply, body)
        }
        _ => reply.clone(),
    }
}

fn with_body(reply: &Reply, body: Vec<u8>) -> Reply {
    Reply { body, ..reply.clone() }
}

fn write_slowly(mut stream: &TcpStream, reply: &Reply) -> io::Result<()> {
    let mut bytes = reply.head(Some(reply.body.len()));
    bytes.extend(&reply.body);
    for piece in bytes.chunks(bytes.len().div_ceil(SLOW_PIECES)) {
        stream.write_all(piece)?;
        thread::sleep(SLOW_PAUSE);
    }
    Ok(())
}

/// Says nothing until the peer has gone.
fn hang(stream: &TcpStream) {
    wait_for_close(stream, |mut stream| stream.read(&mut [0; 1024]).is_ok_and(|n| n > 0));
}

fn wait_for_close(stream: &TcpStream, mut is_open: impl FnMut(&TcpStream) -> bool) {
    let pause = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    stream.set_read_timeout(Some(HANG_MAX)).ok();
    while waited < HANG_MAX && is_open(stream) {
        thread::sleep(pause);
        waited += pause;
    }
}

/// Makes the close that follows a reset in place of an orderly end.
fn reset(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}
