//! What a fresh dispatch needs beside its own row. A stored answer never comes through here.
//!
//! Each gate reads what it rests on and adds to the dispatch commit: an event, or a guard that makes
//! the commit fail when what was read has changed.

use std::time::Duration;

use oncegate_ledger::state::Effect;
use oncegate_ledger::{Append, Expect, StreamId, Ties};

use super::{Wanted, bindings};
use crate::policy::Grant;
use crate::stop::Stop;

/// What the gates let through.
#[derive(Default)]
pub(crate) struct Passage {
    /// Appends and guards of the dispatch commit.
    pub(crate) also: Vec<Append>,
    /// What the effect is tied to.
    pub(crate) ties: Ties,
    /// The first byte leaves within this time or not at all, where that is less than `send-within`.
    pub(crate) send_for: Option<Duration>,
}

impl Wanted<'_> {
    /// Asks every gate in order; the first refusal counts.
    pub(super) async fn gates(&self, grant: &Grant, _row: Option<&Effect>) -> Result<Passage, Stop> {
        let mut passage = Passage { also: self.bindings(grant).await?, ties: self.ties(), send_for: None };
        self.sequence().await?;
        self.completing(&mut passage).await?;
        self.undoing(&mut passage).await?;
        self.fence(&mut passage).await?;
        Ok(passage)
    }

    pub(super) fn ties(&self) -> Ties {
        let fact = |name: &str| self.call.context.get(name).cloned();
        Ties { parent: fact("parent"), plan: fact("plan"), ..Ties::default() }
    }

    /// A fenced host dispatches nothing.
    async fn fence(&self, passage: &mut Passage) -> Result<(), Stop> {
        let me = StreamId::host(self.book.me.id());
        if bindings::last(self.book, me).await?.is_some() {
            return Err(Stop::LedgerUnavailable("this host was fenced".to_owned()));
        }
        passage.also.push(Append::guard(me, Expect::Version(0)));
        Ok(())
    }
}
