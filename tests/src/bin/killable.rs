//! A program to try the kill shim on: `killable FILE PROVIDER-URL` writes an intent, asks for a
//! refund, writes the answer, and prints `done`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().context("FILE is missing")?;
    let url = arguments.next().context("PROVIDER-URL is missing")?;
    let address = url.trim_start_matches("http://");

    let mut file = File::create(file)?;
    file.write_all(b"intent\n")?;
    file.sync_data()?;

    let body = "charge=ch_1";
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "POST /v1/refunds HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;

    file.write_all(&answer)?;
    file.sync_data()?;
    file.sync_all()?;
    println!("done");
    Ok(())
}
