//! The bare exchange: a blocking client, a new connection, one request, the whole answer.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::sample::Times;

/// Makes so many, each under a key of its own, with a body about as long as a rendered request is.
///
/// # Errors
/// The provider does not answer.
pub fn times(url: &str, count: usize, body_bytes: usize) -> Result<Times> {
    let address = url.trim_start_matches("http://");
    let run: u64 = rand::random();
    let mut failed = None;
    let mut number = 0_usize;
    let times = Times::of(count, || {
        number += 1;
        failed = failed.take().or(once(address, &format!("bare-{run:x}-{number}"), body_bytes).err());
    });
    failed.map_or(Ok(times), Err)
}

fn once(address: &str, key: &str, body_bytes: usize) -> Result<()> {
    let body = "x".repeat(body_bytes.saturating_sub(300));
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!(
        "POST /v1/postings HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer sk\r\n\
         idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::with_capacity(1024);
    stream.read_to_end(&mut answer)?;
    answer.starts_with(b"HTTP/1.1 200").then_some(()).context("the provider did not do it")
}
