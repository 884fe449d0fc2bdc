//! What a fresh dispatch needs beside its own row. A stored answer never comes through here.
//!
//! Each gate reads what it rests on and adds to the dispatch commit: an event, or a guard that makes
//! the commit fail when what was read has changed.

use std::time::Duration;

use oncegate_ledger::state::Effect;
use oncegate_ledger::{Append, Expect, StreamId, Ties};

use super::approval::{Approval, Approved};
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
    /// The request that a person approved: what is sent.
    pub(crate) approved: Option<Box<Approved>>,
    /// A person has to see the request first.
    pub(super) asks: bool,
}

impl Wanted<'_> {
    /// Asks every gate in order; the first refusal counts.
    pub(super) async fn gates(&self, grant: &Grant, row: Option<&Effect>) -> Result<Passage, Stop> {
        let also = self.bindings(grant).await?;
        let mut passage = Passage { also, ties: self.ties(), ..Passage::default() };
        passage.also.extend(self.formers_unchanged());
        passage.also.extend(self.pinning());
        self.sequence().await?;
        self.plan(grant, &mut passage)?;
        self.completing(&mut passage).await?;
        self.undoing(&mut passage).await?;
        self.permit(grant, row, &mut passage).await?;
        self.claims(grant, &mut passage).await?;
        match self.approval(grant, row).await? {
            Approval::NotNeeded => {}
            Approval::Given(approved) => passage.approved = Some(approved),
            Approval::Ask => passage.asks = true,
        }
        self.client_key(&mut passage).await?;
        self.fence(&mut passage).await?;
        Ok(passage)
    }

    /// The gates of sending a stored request again: what may have been withdrawn since it was first sent.
    pub(super) async fn gates_again(&self, grant: &Grant, row: &Effect) -> Result<Passage, Stop> {
        let send_for = self.completing_again(row).await?;
        let mut passage = Passage { send_for, ..Passage::default() };
        self.permit(grant, Some(row), &mut passage).await?;
        self.claims(grant, &mut passage).await?;
        self.still_approved(grant, row)?;
        self.client_key(&mut passage).await?;
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
