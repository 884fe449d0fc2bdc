//! What processes say to each other over the socket: frames of CBOR behind their length.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Append, LedgerError, Record, StateTag, Stored, StreamId};

/// Raised when a request or reply changes; both sides must speak the same.
pub(super) const PROTOCOL: u32 = 3;

/// A longer frame is refused: it is more than any append or page needs.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// From a client to the owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Always the first.
    Hello {
        protocol: u32,
    },
    /// The nonce is stored, so that the client can ask `again` after losing the owner.
    Append {
        batch: Vec<Append>,
        #[serde(with = "serde_bytes")]
        nonce: [u8; 16],
        again: bool,
    },
    Read {
        stream: StreamId,
    },
    Scan {
        from_seq: u64,
        limit: usize,
    },
    List {
        state: StateTag,
        after: Option<StreamId>,
        limit: usize,
    },
    Load {
        bytes: Stored,
    },
    /// Removes what lies before the latest `Pruned` of these streams; answered by [`Reply::Forgot`].
    Forget {
        streams: Vec<StreamId>,
    },
    /// Whether the head marker names all that was acknowledged before; answered by [`Reply::Marked`].
    Marked,
}

/// From the owner to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Hello {
        #[serde(with = "serde_bytes")]
        id: [u8; 16],
    },
    Versions(Vec<u64>),
    Records(Vec<Record>),
    Streams(Vec<StreamId>),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Forgot(Forgot),
    Marked,
}

/// What was removed, and how far large bytes were written then: behind it lie those of appends that
/// came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forgot {
    pub(crate) records: u64,
    pub(crate) segment: u64,
    pub(crate) end: u64,
}

/// Replies name the request they answer.
pub(super) type Answered = (u64, Result<Reply, LedgerError>);

pub(super) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    ciborium::into_writer(message, &mut frame).map_err(io::Error::other)?;
    let length = frame.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("the message is longer than the ledger's socket takes"));
    }
    frame[..4].copy_from_slice(&u32::try_from(length).map_err(io::Error::other)?.to_be_bytes());
    Ok(frame)
}

pub(super) fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut frame = Vec::with_capacity(length.min(64 * 1024));
    from.take(length as u64).read_to_end(&mut frame)?;
    if frame.len() != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    ciborium::from_reader(frame.as_slice()).map_err(io::Error::other)
}

/// Reads a client's frame as the owner reads it, and gives the frame of what was read.
///
/// # Errors
/// It is cut off, too long, or nothing that a client says.
pub fn repeat_request(frame: &[u8]) -> io::Result<Vec<u8>> {
    encode(&receive::<(u64, Request)>(&mut &*frame)?)
}

/// Reads an owner's frame as a client reads it, and gives the frame of what was read.
///
/// # Errors
/// It is cut off, too long, or nothing that an owner says.
pub fn repeat_reply(frame: &[u8]) -> io::Result<Vec<u8>> {
    encode(&receive::<Answered>(&mut &*frame)?)
}
