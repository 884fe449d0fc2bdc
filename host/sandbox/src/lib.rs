//! Runs Oncegate guests: the engine, its limits, the door to the world and what stands in it.
//!
//! Start at [`Sandbox`]. [`Description`](describe::Description) tells all that is known of a
//! component without running it; [`policy`] decides what it may do; [`outcome`] is what the agent
//! hears. Nothing here knows a protocol or a person.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

mod attempt;
pub mod cache;
mod call;
mod client_key;
mod credential;
pub mod database;
mod effect;
pub mod egress;
pub mod engine;
mod guest;
pub mod host;
pub mod http;
pub mod limits;
mod load;
mod lookup;
pub mod outcome;
mod perform;
pub mod permit;
pub mod plan;
mod replay;
mod running;
mod sandbox;
mod settle;
mod stamps;
pub mod status;
mod stop;
mod stored_answer;
mod wasi;

pub use client_key::{CLIENT_KEY_CHARS_MAX, ClientKey};
pub use credential::{CredentialError, probe_credential};
pub use load::{ComponentError, Loaded, load, read};
pub use running::{Ready, Running};
pub use sandbox::{CONTEXT_NAMES, CallRequest, DRAIN_MAX, Options, Sandbox, SandboxError, rfc3339, view};

pub use stored_answer::{NoAnswer, StoredAnswer};

pub use settle::{LOOKS_MAX, Looked, Rounds};

pub mod convert;
pub mod describe;
pub mod pack;
pub mod policy;
pub mod schema;
