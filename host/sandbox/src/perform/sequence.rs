//! Effects that repeat legitimately: an ordinal follows the one before it.

use oncegate_ledger::state::StateTag;

use super::{Wanted, ledger_stop};
use crate::stop::Stop;

impl Wanted<'_> {
    /// An ordinal is accepted only when the one before it exists and is decided.
    pub(super) async fn sequence(&self) -> Result<(), Stop> {
        let Some((_, _, n)) = &self.resolved.sequence else { return Ok(()) };
        if *n <= 1 {
            return Ok(());
        }
        let mut row = None;
        for key in self.keys_in_sequence(n - 1)? {
            let found = self.book.effects.get(key.0).await.map_err(|error| ledger_stop(error.into()))?;
            // Today's key comes last and counts: it was begun only when nothing had happened under those
            // of earlier recipes, and they stay as they were then.
            row = found.or(row);
        }
        let decided = row.as_ref().is_some_and(|row| {
            matches!(
                row.state,
                StateTag::Done | StateTag::NoEffect | StateTag::Revoked | StateTag::Undone | StateTag::Superseded
            )
        });
        if decided {
            return Ok(());
        }
        let state = row.map_or("missing", |row| row.state.as_str());
        Err(Stop::SequenceGap(format!("number {n} was asked for while number {} is {state}; nothing was sent", n - 1)))
    }
}
