//! The program and the tools around it, from outside. One module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod accounts;
mod agent;
mod attacks;
mod bad_input;
mod bad_ledgers;
mod book;
mod campaign;
mod closed_table;
mod crash_states;
mod ensure;
mod epochs;
mod hostile;
mod killat;
mod kills;
mod kills_by_mode;
mod localstripe;
mod owners;
mod provider;
mod raw_answers;
mod receipts;
mod recipes;
mod reconcile;
mod relay;
mod rephrase;
mod senders;
mod sequence;
mod settling;
mod tidy;
mod triggers;
mod versions;
