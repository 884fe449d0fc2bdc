//! The program and the tools around it, from outside. One module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agent;
mod attacks;
mod bad_input;
mod bad_ledgers;
mod book;
mod campaign;
mod content_keys;
mod crash_states;
mod disk_faults;
mod disk_power;
mod hostile;
mod killat;
mod kills;
mod kills_by_mode;
mod localstripe;
mod owners;
mod provider;
mod raw_answers;
mod reconcile;
mod rephrase;
mod retention;
mod sequence;
mod tidy;
mod two_step;
mod undo;
mod verbs;
mod versions;
