//! Runs Oncegate guests: the engine, its limits, the door to the world and what stands in it.
//!
//! Start at [`Sandbox`]. [`Description`](describe::Description) tells all that is known of a
//! component without running it; [`policy`] decides what it may do; [`outcome`] is what the agent
//! hears. Nothing here knows a protocol or a person.
#![recursion_limit = "256"] // a call awaits what it asks of a provider, a database or a runner, many futures deep
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

mod attached;
mod attempt;
pub mod cache;
mod call;
mod causes;
mod client_key;
mod computing;
mod credential;
pub mod database;
mod door;
mod echo;
mod effect;
pub mod egress;
pub mod engine;
mod guest;
pub mod host;
pub mod http;
pub mod isolation;
pub mod limits;
mod load;
mod lookup;
pub mod meter;
pub mod outcome;
mod over;
mod perform;
pub mod permit;
mod place;
pub mod plan;
pub mod privacy;
mod repeats;
mod replay;
#[cfg(target_os = "linux")]
mod runner;
mod running;
mod sandbox;
mod settle;
pub mod signature;
mod stamps;
pub mod status;
mod stop;
mod stored_answer;
mod wasi;

pub use client_key::{CLIENT_KEY_CHARS_MAX, ClientKey};
pub use credential::{CredentialError, probe_credential, read_secret, without_secret};
pub use load::{ComponentError, Loaded, read};
pub use running::{Ready, Running};
pub use sandbox::{CONTEXT_NAMES, CallRequest, DRAIN_MAX, Options, Runners, Sandbox, SandboxError, rfc3339, view};

pub use stored_answer::{NoAnswer, StoredAnswer};

pub use settle::{LOOKS_MAX, Looked, Rounds};

pub mod convert;
pub mod describe;
pub mod pack;
pub mod policy;
pub mod schema;
pub mod shares;
