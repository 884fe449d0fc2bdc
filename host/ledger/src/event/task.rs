//! What is stored of a call that goes on while its caller asks for it later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Stored;

/// Whose a task is: the tenant and the permit that the caller's own right to call fixes. Where it fixes
/// none, the random name alone protects a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskOwner {
    /// The tenant.
    pub tenant: Option<String>,
    /// The permit.
    pub permit: Option<String>,
}

/// A call as it was asked for: enough to make the very same call again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBegun {
    /// Who may ask for it.
    pub owner: TaskOwner,
    /// The tool, as it is served.
    pub tool: String,
    /// The component that ran it first.
    #[serde(with = "serde_bytes")]
    pub component: [u8; 32],
    /// That component's name: under another one the same arguments are other effects.
    #[serde(default)]
    pub name: String,
    /// The arguments, JSON.
    pub arguments: Stored,
    /// The facts of the call.
    pub context: BTreeMap<String, String>,
    /// The host that runs it.
    #[serde(with = "serde_bytes")]
    pub host: [u8; 16],
    /// Since when.
    pub at: u64,
    /// Until when it is kept.
    pub until: u64,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskEnding {
    /// The call was answered, with whatever answer.
    Answered,
    /// Its caller wanted no more of it.
    Cancelled,
}

/// One task among those of its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// Its random name.
    #[serde(with = "serde_bytes")]
    pub id: [u8; 32],
    /// Until when it is kept.
    pub until: u64,
    /// It has ended.
    pub ended: bool,
}
