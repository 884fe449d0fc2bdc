//! The program and the tools around it, from outside. One module for each subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod agent;
mod killat;
mod localstripe;
mod provider;
mod rephrase;
