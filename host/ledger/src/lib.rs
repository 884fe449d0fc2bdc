//! The ledger of effects: one pure state function and the back ends that store what it decides.
//!
//! [`state`] says which event is legal next and what an identical call should hear; it does no I/O,
//! knows no clock and draws no random number. [`Ledger`] is an append-only store of hash-chained
//! streams with three back ends here: [`memory::MemoryLedger`], [`redb::RedbLedger`] and
//! [`postgres::PostgresLedger`]. [`Effects`]
//! joins the two: it refuses to store an event that the state function does not allow.
//!
//! What holds, in order of importance: a second effect is never permitted, a receipt is never lost
//! or rewritten, nothing is told as done that is not durable.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

// Tests inside and outside the crate share their samples.
#[cfg(test)]
extern crate self as oncegate_ledger;
#[cfg(test)]
#[path = "../tests/it/samples.rs"]
#[expect(dead_code, reason = "the tests outside use the rest")]
mod samples;

pub mod event;
pub mod state;
pub mod stream;

pub mod effects;
pub mod error;
pub mod export;
pub mod hosts;
pub mod ledger;
pub mod memory;
pub mod outside;
pub mod postgres;
pub mod private;
pub mod redb;
pub mod tasks;
pub mod verify;

mod commit;
pub mod consequences;
mod record;
mod wire;

pub use effects::{Effects, EffectsError, Giving, Landing};
pub use error::LedgerError;
pub use event::{
    Dispatch, Enciphered, Ended, Event, KeyName, ObjectKind, Outcome, PermitUse, Private, Proposal, SettleVerdict,
    Stored, TaskBegun, TaskEnding, TaskOwner, TaskRef, Ties, Tombstone,
};
pub use ledger::{
    INLINE_BYTES_MAX, Ledger, LedgerIdentity, PAGE_MAX, Role, init, last_number, open, open_for_reading, sealed_to,
};
pub use state::{Answer, Attempt, Effect, Illegal, ResendTerms, Sender, StateTag, answer, may_resend};
pub use stream::{Append, Expect, Record, StreamId, StreamKind, Tip};
pub use tasks::{Task, Tasks, TasksError};

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}
