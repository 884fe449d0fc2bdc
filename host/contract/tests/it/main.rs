//! Tests of the whole crate from outside, one file per behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "tests stop at the first surprise"
)]

mod answers;
mod contracts;
mod databases;
mod fitting;
mod fixtures;
mod path_shape;
mod properties;
mod relations;
mod rendering;
mod resolving;
mod settling;
mod vectors;
