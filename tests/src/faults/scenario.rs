//! What is driven: a guest, one kind of effect, and how the provider's objects are told apart.
//!
//! A new scenario is a file beside these and a line in [`ALL`].

mod campaign;
mod posts;
mod refunds;

use serde_json::Value;

/// One request of an agent: the same targets, in other words each time.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The business identifiers of the things that must happen once each.
    pub targets: &'a [String],
    /// The model's wording.
    pub words: &'a str,
    /// A bound value, where the callers disagree about it.
    pub value: Option<u64>,
}

/// A tool and its domain.
#[derive(Debug)]
pub struct Scenario {
    /// Its name in rows; the guest example is called the same.
    pub name: &'static str,
    /// The tool that is called.
    pub tool: &'static str,
    /// Facts of the context beside the tenant.
    pub context: &'static [&'static str],
    /// What the provider calls one effect.
    pub kind: &'static str,
    /// Where effects are asked for.
    pub path: &'static str,
    /// Changes of the contract that keep its length: the matrix cannot wait for minutes.
    pub edits: &'static [(&'static str, &'static str)],
    /// The target with this number.
    pub target: fn(u64) -> String,
    /// The tool's arguments.
    pub arguments: fn(&Ask) -> Value,
    /// The target of an object at the provider.
    pub target_of: fn(&Value) -> Option<&str>,
    /// True when a call may name many targets.
    pub many: bool,
    /// Values that callers disagree about; none where everything but the wording is in the key.
    pub values: &'static [u64],
}

/// The scenarios of the matrix.
pub static ALL: [&Scenario; 3] = [&refunds::SCENARIO, &campaign::SCENARIO, &posts::SCENARIO];

/// Those that any tool can be driven with: one effect, which the provider lists.
pub static COMMON: [&Scenario; 2] = [&refunds::SCENARIO, &campaign::SCENARIO];

/// The one with many effects a call.
pub fn many() -> &'static Scenario {
    &campaign::SCENARIO
}

/// The one with bound values.
pub fn valued() -> &'static Scenario {
    &refunds::SCENARIO
}
