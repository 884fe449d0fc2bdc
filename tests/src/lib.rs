//! The program from outside: a fake provider whose counts are the oracle, a client for its
//! controls, a harness that runs the built `oncegate`, and a shim that kills it at a system call.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

pub mod appends;
pub mod attack;
pub mod baddisk;
pub mod client;
pub mod databases;
pub mod debian;
pub mod deploy;
pub mod faults;
pub mod harness;
pub mod killat;
pub mod localstripe;
pub mod mcp;
pub mod provider;
pub mod python;
pub mod shim;
