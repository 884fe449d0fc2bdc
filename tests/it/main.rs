//! The program and the tools around it, from outside. One module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agent;
mod attacks;
mod bad_input;
mod bad_ledgers;
mod book;
mod campaign;
mod crash_states;
mod hostile;
mod killat;
mod kills;
mod kills_by_mode;
mod localstripe;
mod owners;
mod plans;
mod provider;
mod raw_answers;
mod reconcile;
mod rephrase;
mod sequence;
mod tidy;
mod versions;
