//! Exclusive claims: a real-world purpose belongs to one effect, whichever operation serves it.
//!
//! Whether a purpose is taken follows from the rows of those that ever took it, and each of these rows
//! is guarded in the dispatch commit: one that freezes or comes back in between stops the dispatch.

use oncegate_ledger::consequences::{holder, occupies, takers};
use oncegate_ledger::state::{Effect, Sender, StateTag};
use oncegate_ledger::{Append, Event, Expect, LedgerError, StreamId};
use tokio::time::Instant;

use super::identity::key_of;
use super::{ATTACH_POLL, Passage, Step, Wanted, attempt_stop, ledger_stop};
use crate::call::Asked;
use crate::policy::{Exclusive, Grant};
use crate::settle::{self, Patience};
use crate::stop::Stop;

impl Wanted<'_> {
    /// Takes every purpose that the policy names for this operation, unless another effect has it.
    pub(super) async fn claims(&self, grant: &Grant, passage: &mut Passage) -> Result<(), Stop> {
        for exclusive in &grant.exclusives {
            let stream = self.purpose(exclusive)?;
            self.claim(stream, passage).await?;
        }
        Ok(())
    }

    /// The purposes that a found effect serves: it has them whoever else does.
    pub(super) fn purposes(&self, grant: &Grant) -> Result<Vec<[u8; 32]>, Stop> {
        grant.exclusives.iter().map(|exclusive| self.purpose(exclusive).map(|stream| stream.id)).collect()
    }

    fn purpose(&self, exclusive: &Exclusive) -> Result<StreamId, Stop> {
        let value = |name: &String| self.resolved.field(name)?.normal.as_deref();
        let values: Option<Vec<&str>> = exclusive.by.iter().map(value).collect();
        let values = values.ok_or_else(|| Stop::NotPermitted("this operation is not permitted".to_owned()))?;
        Ok(StreamId::claim(self.call.tenant(), &exclusive.name, &values))
    }

    async fn claim(&self, stream: StreamId, passage: &mut Passage) -> Result<(), Stop> {
        let records = self.book.effects.ledger.read(stream).await.map_err(|error| ledger_stop(error.into()))?;
        let ours = self.epochs()?;
        for taker in takers(records.iter().map(|record| &record.event)) {
            if ours.contains(&taker) {
                continue;
            }
            let row = self.other(taker).await?;
            if occupies(&row) {
                return Err(Stop::Claimed(taker));
            }
            passage.also.push(Append::guard(StreamId::effect(taker), Expect::Version(row.version)));
        }
        let version = Expect::Version(records.last().map_or(0, |record| record.version));
        let held = holder(records.iter().map(|record| &record.event)) == Some(self.key.0);
        passage.also.push(if held {
            Append::guard(stream, version)
        } else {
            let event = Event::ClaimTaken { effect: self.key.0, at: (self.call.host.now)() };
            Append::new(stream, version, event)
        });
        passage.ties.claims.push(stream.id);
        Ok(())
    }

    /// The keys of this effect at every epoch so far, by whatever recipe: what an earlier one did is no
    /// other effect.
    fn epochs(&self) -> Result<Vec<[u8; 32]>, Stop> {
        let mut keys = Vec::new();
        for epoch in 0..=self.epoch {
            keys.push(key_of(self.call, self.operation, &self.account, &self.resolved, epoch)?.0);
            keys.extend(self.former_keys(epoch)?.into_iter().map(|key| key.0));
        }
        Ok(keys)
    }

    async fn other(&self, key: [u8; 32]) -> Result<Effect, Stop> {
        let row = self.book.effects.get(key).await.map_err(|error| ledger_stop(error.into()))?;
        let lost = || LedgerError::Damaged { why: "a claim was taken by an effect that is not there".to_owned() };
        row.ok_or_else(|| ledger_stop(lost().into()))
    }

    /// Another effect has the purpose: waited for and found out about like one's own, then it is the
    /// answer.
    pub(super) async fn claimed(
        &self,
        other: [u8; 32],
        asked: &mut Asked,
        until: Instant,
        settled: &mut bool,
    ) -> Result<Step, Stop> {
        let row = self.other(other).await?;
        let sending = row.state == StateTag::Dispatched && self.call.host.sender(self.book, &row) == Sender::Running;
        if sending && self.moves(other, &row, until).await? {
            return Ok(Step::Again);
        }
        let open =
            matches!(row.state, StateTag::Dispatched | StateTag::Responded | StateTag::Unknown | StateTag::Issued);
        if open && !sending && !std::mem::replace(settled, true) {
            settle::refresh(&self.call.host, self.book, other, None, Patience::Brief).await.map_err(attempt_stop)?;
            return Ok(Step::Again);
        }
        asked.instead = Some(other);
        Err(Stop::Claimed(other))
    }

    /// Whether the other effect changes in time.
    async fn moves(&self, other: [u8; 32], row: &Effect, until: Instant) -> Result<bool, Stop> {
        while Instant::now() < until {
            tokio::time::sleep(ATTACH_POLL).await;
            let stopped = self.call.host.sender(self.book, row) != Sender::Running;
            if stopped || self.other(other).await?.version != row.version {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
