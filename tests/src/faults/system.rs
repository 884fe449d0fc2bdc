//! Who keeps the promise: Oncegate, a control that does not, or another library.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use super::scenario::{Ask, Scenario};
use crate::client::Client;

/// A row of a ledger, as far as the oracle looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Held {
    /// Names the target.
    pub label: String,
    /// The state word.
    pub state: String,
    /// The receipt, once known.
    pub receipt: Option<String>,
    /// A person has to look.
    #[serde(default)]
    pub frozen: bool,
}

/// One system with a provider of its own.
pub trait System: Send + Sync {
    /// Its name in rows.
    fn name(&self) -> &str;
    /// The kind of ledger.
    fn ledger(&self) -> &str;
    /// What it is driven with.
    fn scenario(&self) -> &'static Scenario;
    /// The provider's controls and counts.
    fn provider(&self) -> Client;
    /// A folder for files of a run.
    fn folder(&self) -> &Path;
    /// One call in a process of its own, not yet started.
    ///
    /// # Errors
    /// It cannot be made.
    fn call(&self, ask: &Ask) -> Result<Command>;
    /// What finds out about open rows, in a process of its own; none where the system has nothing.
    fn reconcile(&self) -> Option<Command>;
    /// A process that takes asks as lines of JSON and runs all at once; none where there is none.
    fn crowd(&self) -> Option<Command>;
    /// Its rows; none when it shows none.
    ///
    /// # Errors
    /// They cannot be read.
    fn rows(&self) -> Result<Option<Vec<Held>>>;
    /// Everything that is stored, as text; none when it shows nothing.
    ///
    /// # Errors
    /// It cannot be read.
    fn stored(&self) -> Result<Option<String>>;
    /// One ask as a line for [`System::crowd`].
    fn line(&self, ask: &Ask) -> String {
        let _ = ask;
        String::new()
    }
}
