//! A relay that writes down the name of every command that goes to a document database.
//!
//! It reads the two kinds of messages that carry commands, and only as far as the first member's name,
//! which is the command's. The bytes go on as they came.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

/// Codes of messages that carry a command.
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;

/// A running relay; it ends with the process.
pub struct Recorder {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Listens on loopback and leads to another port there.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || lead(client, to, &kept));
            }
        });
        Ok(Self { port, seen })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The names of all commands so far, in order.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn lead(mut client: TcpStream, to: u16, seen: &Mutex<Vec<String>>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)) else { return };
    let (Ok(mut back_from), Ok(mut back_to)) = (server.try_clone(), client.try_clone()) else { return };
    thread::spawn(move || {
        // It ends with either side.
        std::io::copy(&mut back_from, &mut back_to).ok();
        back_to.shutdown(Shutdown::Both).ok();
    });
    while let Ok(message) = message(&mut client) {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(name(&message).unwrap_or_else(|| "?".to_owned()));
        if server.write_all(&message).is_err() {
            break;
        }
    }
    server.shutdown(Shutdown::Both).ok();
}

fn message(from: &mut TcpStream) -> Result<Vec<u8>> {
    let mut message = vec![0; 16];
    from.read_exact(&mut message)?;
    let length = int(&message, 0).and_then(|length| usize::try_from(length).ok()).context("no length")?;
    message.resize(length.clamp(16, 48_000_000), 0);
    from.read_exact(&mut message[16..])?;
    Ok(message)
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The name of the first member of the command's document.
fn name(message: &[u8]) -> Option<String> {
    let document = match int(message, 12)? {
        // Flags, then the kind of the first section.
        OP_MSG if message.get(20) == Some(&0) => 21,
        // Flags, the collection's name, and two numbers.
        OP_QUERY => 20 + message.get(20..)?.iter().position(|byte| *byte == 0)? + 9,
        _ => return None,
    };
    // Length of the document, type of the member, then its name up to a NUL.
    let name = message.get(document + 5..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}
