//! Ids of requests that were cancelled: they are used up. What such a request comes to is not sent, unless
//! another one runs under its id by then: that one would be told it as its own answer.

use std::collections::VecDeque;

use rmcp::model::RequestId;
use sha2::{Digest, Sha256};

/// Ids that are remembered on one connection. A client that cancels more than these, and goes back to the
/// first, does so when that one has long ended.
const KEPT_MAX: usize = 1_024;

/// The latest ones, as digests: an id may be a long text.
#[derive(Default)]
pub(super) struct Cancelled(VecDeque<[u8; 32]>);

impl Cancelled {
    pub(super) fn add(&mut self, id: &RequestId) {
        if self.has(id) {
            return;
        }
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(digest(id));
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        !self.0.is_empty() && self.0.contains(&digest(id))
    }
}

fn digest(id: &RequestId) -> [u8; 32] {
    let (kind, text) = match id {
        RequestId::Number(number) => ("n", number.to_string()),
        RequestId::String(text) => ("s", text.to_string()),
    };
    Sha256::new().chain_update(kind).chain_update(text).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let mut cancelled = Cancelled::default();
        let number = |n: usize| RequestId::Number(i64::try_from(n).unwrap());
        assert!(!cancelled.has(&number(0)));
        (0..=KEPT_MAX).for_each(|n| cancelled.add(&number(n)));
        cancelled.add(&number(1));
        assert!(!cancelled.has(&number(0)) && cancelled.has(&number(1)) && cancelled.has(&number(KEPT_MAX)));
        assert!(!cancelled.has(&RequestId::String("1".into())));
        assert_eq!(cancelled.0.len(), KEPT_MAX);
    }
}
