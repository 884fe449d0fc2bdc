//! Ratios of one run: what is measured, against what, and whether the goal was met.
//!
//! Each row compares two things that were measured in turn, on the same machine, in the same minute: the ratio
//! holds elsewhere, the times do not. [`part`] has one module for each row or group of rows.
#![recursion_limit = "256"] // as in the library that it calls: futures many deep
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

pub mod machine;
pub mod part;
pub mod plot;
pub mod program;
pub mod row;
pub mod sample;
pub mod table;
