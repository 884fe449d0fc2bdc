//! Appends of other processes, counted as they begin and as they end.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Foreign {
    /// Before it is handed in.
    pub(super) fn begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// After its outcome can be read. One whose end is never told stays under way.
    pub(super) fn ends(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// How many there were, if none is under way.
    pub(super) fn settled(&self) -> Option<u64> {
        // In this order: what has ended by the first look has begun by the second.
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_while_one_is_under_way() {
        let foreign = Foreign::default();
        assert_eq!(foreign.settled(), Some(0));
        foreign.begins();
        assert_eq!(foreign.settled(), None);
        foreign.begins();
        foreign.ends();
        assert_eq!(foreign.settled(), None);
        foreign.ends();
        assert_eq!(foreign.settled(), Some(2));
    }
}
