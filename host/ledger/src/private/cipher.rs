//! Encrypting one part of one event, so that it can be read back there and nowhere else.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::{KeyName, LedgerError, StreamId};

/// Version of a ciphertext, in front of it.
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What a ciphertext is longer by than what it is of.
pub(super) const OVERHEAD_BYTES: usize = 1 + NONCE_BYTES + TAG_BYTES;
const DOMAIN: &[u8] = b"oncegate private 1";

/// A key in memory; wiped when it is let go.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// Where a ciphertext stands: it is of no use anywhere else.
pub(super) struct Place {
    pub(super) ledger: [u8; 16],
    pub(super) stream: StreamId,
    pub(super) key: KeyName,
    pub(super) part: u8,
}

impl Place {
    fn bound(&self) -> Vec<u8> {
        let mut bound = DOMAIN.to_vec();
        bound.extend(self.ledger);
        bound.extend(self.stream.to_bytes());
        bound.extend(named(&self.key));
        bound.push(self.part);
        bound
    }
}

/// The name of a key, as it is bound into what the key encrypts and into what wraps it.
pub(super) fn named(key: &KeyName) -> Vec<u8> {
    let mut bytes = vec![key.kind as u8];
    bytes.extend(key.id);
    bytes.extend(key.generation.to_be_bytes());
    bytes
}

pub(super) fn encrypt(secret: &Secret, place: &Place, plain: &[u8]) -> Result<Vec<u8>, LedgerError> {
    seal(secret, &place.bound(), plain)
}

/// None where it was written for another place, under another key, or changed.
pub(super) fn decrypt(secret: &Secret, place: &Place, sealed: &[u8]) -> Option<Vec<u8>> {
    open(secret, &place.bound(), sealed)
}

/// Encrypts with what it is bound to. A random nonce of 192 bits is never drawn twice.
pub(super) fn seal(secret: &Secret, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, LedgerError> {
    let nonce: [u8; NONCE_BYTES] = rand::random();
    let cipher = XChaCha20Poly1305::new(&Key::from(**secret));
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: bound });
    let sealed = sealed.map_err(|_| LedgerError::Invalid { why: "bytes that are too long to encrypt".to_owned() })?;
    let mut whole = Vec::with_capacity(1 + NONCE_BYTES + sealed.len());
    whole.push(VERSION);
    whole.extend(nonce);
    whole.extend(sealed);
    Ok(whole)
}

/// The inverse of [`seal`].
pub(super) fn open(secret: &Secret, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (version, rest) = sealed.split_first()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if *version != VERSION {
        return None;
    }
    let cipher = XChaCha20Poly1305::new(&Key::from(**secret));
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: body, aad: bound }).ok()
}
