//! A task as either revision tells of it, and its name.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use oncegate_ledger::TaskBegun;
use oncegate_sandbox::rfc3339;
use serde_json::Value;

/// In front of every name, so that people know what it is.
const PREFIX: &str = "task_";

/// What a task has come to.
pub(super) enum Status {
    Working,
    Cancelled,
    /// The call was answered; whether its answer is one that a protocol reports as an error.
    Answered {
        is_error: bool,
    },
}

/// A task as it stands.
pub(super) struct View {
    pub(super) id: [u8; 32],
    pub(super) status: Status,
    pub(super) message: String,
    /// The result of the call; for one that was cancelled, what was known then.
    pub(super) answer: Option<Value>,
    created_at: u64,
    changed_at: u64,
    until: u64,
}

impl View {
    pub(super) fn of(id: [u8; 32], task: &TaskBegun, changed_at: u64, status: Status, message: String) -> Self {
        Self { id, status, message, answer: None, created_at: task.at, changed_at, until: task.until }
    }

    pub(super) fn is_over(&self) -> bool {
        !matches!(self.status, Status::Working)
    }

    pub(super) fn name(&self) -> String {
        name(&self.id)
    }

    pub(super) fn created(&self) -> String {
        rfc3339(self.created_at)
    }

    pub(super) fn changed(&self) -> String {
        rfc3339(self.changed_at)
    }

    /// Milliseconds from its creation for which it is kept.
    pub(super) fn kept_for(&self) -> u64 {
        self.until.saturating_sub(self.created_at)
    }
}

/// The name that clients know.
pub(super) fn name(id: &[u8; 32]) -> String {
    format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(id))
}

/// The reverse; none for what is no name.
pub(super) fn read_name(name: &str) -> Option<[u8; 32]> {
    BASE64_URL_SAFE_NO_PAD.decode(name.strip_prefix(PREFIX)?).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let id = [0xfb; 32];
        assert_eq!(read_name(&name(&id)), Some(id));
        for wrong in ["", "task_", "task_AAAA", &name(&id)[1..], &format!("{}A", name(&id))] {
            assert_eq!(read_name(wrong), None, "{wrong}");
        }
    }
}
