//! The crate from outside: its state function enumerated, and one suite for every back end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod consequences;
mod every_order;
mod histories;
mod open;
mod postgres;
mod private;
mod processes;
mod retention;
mod samples;
mod states;
mod suite;
mod tampered;
mod tasks;
mod truth;
mod unhurried;
