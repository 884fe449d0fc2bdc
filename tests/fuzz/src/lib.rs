//! What must hold for any bytes, where bytes of others come in: one function for each place.
//!
//! A target returns when all that it looks at holds, and panics otherwise. `cargo xtask fuzz` lets libFuzzer
//! look for bytes under which it panics, hangs or takes memory without end; `cargo test` gives each target
//! the corpus that is kept for it, so whatever was found once is tried again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target says what does not hold by a panic; it is linked into no program but its own"
)]

mod component;
mod contract;
mod convert;
mod frames;
mod ledger;
mod parts;
mod policy;
mod render;
mod response;
mod selectors;

use std::path::PathBuf;

/// One place where bytes of others come in.
#[derive(Debug)]
pub struct Target {
    /// Its name, and the name of its corpus.
    pub name: &'static str,
    /// Who may have written the bytes, and what reads them.
    pub reads: &'static str,
    /// Tries one input.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target { name: "contract", reads: "the author's contract", run: contract::run },
    Target { name: "policy", reads: "the operator's policy", run: policy::run },
    Target {
        name: "selectors",
        reads: "pointers and conditions, and the answer that they are asked of",
        run: selectors::run,
    },
    Target {
        name: "render",
        reads: "arguments, facts, lookups and a guest's values, on their way into a request",
        run: render::run,
    },
    Target {
        name: "response",
        reads: "a provider's raw answer: parsed, judged, searched, scrubbed",
        run: response::run,
    },
    Target { name: "convert", reads: "an agent's arguments, by the types of a tool", run: convert::run },
    Target { name: "ledger", reads: "stored records, exports and frames of the ledger's socket", run: ledger::run },
    Target { name: "frames", reads: "an MCP client's lines and headers", run: frames::run },
    Target { name: "component", reads: "a component's bytes, before anything of it is compiled", run: component::run },
];

/// Where a target's corpus is kept.
#[must_use]
pub fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}
