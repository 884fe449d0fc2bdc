//! The program and the tools around it, from outside. One module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agent;
mod approvals;
mod attacks;
mod bad_input;
mod bad_ledgers;
mod book;
mod campaign;
mod claims;
mod crash_states;
mod disk_faults;
mod disk_power;
mod ensure;
mod epochs;
mod hostile;
mod killat;
mod kills;
mod kills_by_mode;
mod localstripe;
mod many;
mod owners;
mod permits;
mod plans;
mod provider;
mod raw_answers;
mod receipts;
mod recipes;
mod reconcile;
mod rephrase;
mod retention;
mod sequence;
mod tidy;
mod triggers;
mod two_step;
mod verbs;
mod versions;
