//! What the program reads from a client before it believes anything: lines, JSON, headers and facts.
//!
//! It stands apart from the program so that it can be tried with any bytes. The program is in `main.rs`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

pub mod facts;
pub mod frame;
pub mod strict;
