//! Effects in two steps: one that exists and is not final, and the one that makes it final.
//!
//! The first one's answer is given to the guest, which finds in it what the second one needs; it is the
//! stored answer, so that a challenge of which the bytes came is never lost. The time to complete it
//! runs from the first one's dispatch by the latest clock known.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::Answer;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, EffectsError, Event, Expect, StreamId, StreamKind};

use super::{Next, Passage, Step, Wanted, attempt_stop, ledger_stop};
use crate::attempt::{self, AttemptError};
use crate::call::{Fetch, Reply};
use crate::host::{Book, Host};
use crate::outcome::Detail;
use crate::replay;
use crate::settle::{self, Patience, Settled};
use crate::stop::Stop;

/// States of a completing effect in which it may yet make the other one final.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

impl Wanted<'_> {
    /// Whether this tool can ask for the operation that makes this effect final.
    pub(super) fn is_completed_here(&self) -> bool {
        let Some(completing) = &self.operation.completed_by else { return false };
        let tool = self.call.contract().tools.get(&self.call.tool);
        tool.is_some_and(|tool| tool.operations.contains(completing))
    }

    /// A row that exists and is not final: a lookup may show that it is; else the guest of a tool that
    /// can complete it is given what it needs for that.
    pub(super) async fn issued(&self, row: Effect, settled: &mut bool) -> Result<Step, Stop> {
        let host = &self.call.host;
        if strand(host, self.book, self.key.0, &row).await.map_err(attempt_stop)? {
            return Ok(Step::Again);
        }
        if !self.is_completed_here() {
            return self.settle(row, settled).await;
        }
        if self.operation.settle.is_some() && !std::mem::replace(settled, true) {
            let component = &self.call.component.description.digest;
            let found = settle::settle(host, self.book, self.key.0, &row, component, Patience::Brief).await;
            if let Settled::Changed = found.map_err(attempt_stop)? {
                return Ok(Step::Again);
            }
        }
        self.step_to_complete(&row, true).await
    }

    /// The provider's answer of an issued effect, from the stored bytes.
    pub(super) async fn step_to_complete(&self, row: &Effect, replayed: bool) -> Result<Step, Stop> {
        let answer = replay::answer(&self.call.host, self.book, self.key.0, row, self.operation).await;
        let reply = self.first_step(answer.map_err(attempt_stop)?, replayed, None);
        Ok(Step::End(Next::Reply(reply)))
    }

    /// Gives an answer to the guest, and keeps it for the fields of the completing operation.
    pub(super) fn first_step(&self, answer: Answer, replayed: bool, done: Option<bool>) -> Reply {
        let known = |fetch: &Arc<Fetch>| fetch.effect == Some(self.key.0);
        if self.is_completed_here() && !self.call.lookups().iter().any(known) {
            // The bytes are in the effect's own row.
            self.call.add_source(&self.operation.name, true, &answer, |fetched| Fetch {
                fetched,
                digest: self.key.0,
                raw: Vec::new(),
                effect: Some(self.key.0),
            });
        }
        self.call.reply(self.operation, answer, replayed, done)
    }

    /// A completing operation is sent only for an effect that is issued, and while there is time.
    pub(super) async fn completing(&self, passage: &mut Passage) -> Result<(), Stop> {
        let Some(name) = &self.operation.completes else { return Ok(()) };
        let target = self.completes(name)?;
        let row = self.effect(target).await?;
        passage.send_for = self.time_for(target, &row).await?;
        // It must be issued still when this is committed, and whoever strands it must see this.
        passage.also.push(Append::guard(StreamId::effect(target), Expect::Version(row.version)));
        passage.also.push(Append::new(index(target), Expect::Any, Event::LookupResolved { effect: self.key.0 }));
        passage.ties.completes = Some(target.into());
        Ok(())
    }

    /// The same for a request that is sent again; gives the time that is left for it.
    pub(super) async fn completing_again(&self, row: &Effect) -> Result<Option<Duration>, Stop> {
        let Some(target) = row.ties().and_then(|ties| ties.completes) else { return Ok(None) };
        let target = target.into_array();
        // This one may have done it already: whatever stops it, nobody knows.
        let open = |_| Stop::Unsettled(Detail::Unknown);
        let row = self.effect(target).await?;
        if row.state != StateTag::Issued || row.frozen {
            return Err(open(()));
        }
        self.left(target, &row).await?.ok_or(open(())).map(Left::duration)
    }

    /// The effect whose answer the fields came from, else the only one there is.
    fn completes(&self, name: &str) -> Result<[u8; 32], Stop> {
        let of = |fetches: &[Arc<Fetch>]| -> Vec<[u8; 32]> {
            fetches.iter().filter(|fetch| fetch.fetched.operation == name).filter_map(|fetch| fetch.effect).collect()
        };
        let named = of(&self.fetches);
        let all = if named.is_empty() { of(&self.call.lookups()) } else { named };
        match all[..] {
            [one] => Ok(one),
            [] => Err(Stop::InvalidField(format!("it completes {name}, and this call has no answer of that"))),
            _ => Err(Stop::InvalidField(format!("it completes {name}, and no field says which of this call's"))),
        }
    }

    async fn effect(&self, key: [u8; 32]) -> Result<Effect, Stop> {
        let row = self.book.effects.get(key).await.map_err(|error| ledger_stop(error.into()))?;
        row.ok_or_else(|| Stop::InvalidField("what it would complete does not exist".to_owned()))
    }

    async fn time_for(&self, target: [u8; 32], row: &Effect) -> Result<Option<Duration>, Stop> {
        match row.state {
            _ if row.frozen => return Err(Stop::Unsettled(Detail::Frozen)),
            StateTag::Issued => {}
            StateTag::Stranded => return Err(Stop::Unsettled(Detail::Stranded)),
            StateTag::Done => {
                return Err(Stop::NotPermitted(
                    "What it would complete is final already; nothing was sent.".to_owned(),
                ));
            }
            StateTag::Undone | StateTag::Revoked | StateTag::Superseded => return Err(Stop::Revoked),
            _ => return Err(Stop::Unsettled(Detail::Unknown)),
        }
        if let Some(left) = self.left(target, row).await? {
            return Ok(left.duration());
        }
        let stranded = strand(&self.call.host, self.book, target, row).await.map_err(attempt_stop)?;
        Err(Stop::Unsettled(if stranded { Detail::Stranded } else { Detail::Issued }))
    }

    /// The time that is left by the contract that the effect was dispatched under and by today's, of
    /// which the shorter counts; none when it is over.
    async fn left(&self, target: [u8; 32], row: &Effect) -> Result<Option<Left>, Stop> {
        let host = &self.call.host;
        let then = complete_within(host, self.book, row).await.map_err(attempt_stop)?;
        let within = [then, self.operation.complete_within].into_iter().flatten().min();
        time_left(host, self.book, target, row, within).await.map_err(|why| {
            tracing::error!(%why, label = row.label(), "the time to complete an effect cannot be told");
            Stop::Unsettled(Detail::Issued)
        })
    }
}

/// The effects that were sent to complete this one, as a stream.
fn index(target: [u8; 32]) -> StreamId {
    StreamId { kind: StreamKind::Lookup, id: target }
}

/// Time that is left to complete an effect.
enum Left {
    /// As long as it takes.
    Unbounded,
    /// So long.
    For(Duration),
}

impl Left {
    fn duration(self) -> Option<Duration> {
        match self {
            Left::Unbounded => None,
            Left::For(left) => Some(left),
        }
    }
}

/// None when it is over by any clock that is known; an error when that cannot be told.
async fn time_left(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    within: Option<Duration>,
) -> Result<Option<Left>, String> {
    let Some(within) = within else { return Ok(Some(Left::Unbounded)) };
    let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let end = row.first_dispatch_at_of_generation.saturating_add(within);
    // Its own clock alone may say so; the ledger need not be read for that.
    if (host.now)().max(row.updated_at) >= end {
        return Ok(None);
    }
    let left = end.saturating_sub(attempt::known_time(host, book, key).await?);
    Ok((left > 0).then(|| Left::For(Duration::from_millis(left))))
}

/// What the contract says that the row was dispatched under.
async fn complete_within(host: &Host, book: &Book, row: &Effect) -> Result<Option<Duration>, AttemptError> {
    let Some(dispatch) = row.dispatch.as_deref() else { return Ok(None) };
    let contract = host.contract(book, dispatch.contract).await?;
    let completing = contract.operations.get(&dispatch.operation).and_then(|one| one.completed_by.as_ref());
    let completing = completing.and_then(|name| contract.operations.get(name));
    Ok(completing.and_then(|operation| operation.complete_within))
}

/// Says of an issued effect that it can never be completed, once its time is over and nothing that was
/// sent to complete it can still turn out to have done so. True when the row has changed.
pub(crate) fn strand<'a>(
    host: &'a Arc<Host>,
    book: &'a Book,
    key: [u8; 32],
    row: &'a Effect,
) -> Pin<Box<dyn Future<Output = Result<bool, AttemptError>> + Send + 'a>> {
    Box::pin(async move {
        if row.state != StateTag::Issued || row.frozen {
            return Ok(false);
        }
        let within = complete_within(host, book, row).await?;
        match time_left(host, book, key, row, within).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(false),
            Err(why) => {
                tracing::warn!(%why, label = row.label(), "the time to complete an effect cannot be told");
                return Ok(false);
            }
        }
        let sent = book.effects.ledger.read(index(key)).await.map_err(EffectsError::from)?;
        for record in &sent {
            if let Event::LookupResolved { effect } = record.event
                && settle::refresh(host, book, effect, None, Patience::Brief).await?.is_some_and(|row| is_open(&row))
            {
                return Ok(false);
            }
        }
        let unseen = Append::guard(index(key), Expect::Version(sent.last().map_or(0, |record| record.version)));
        let why = "the time to complete it is over".to_owned();
        let event = Event::Stranded { at: (host.now)(), why };
        match book.effects.advance(key, Some(row), event, vec![unseen]).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() => Ok(true),
            Err(error) => Err(error.into()),
        }
    })
}

fn is_open(row: &Effect) -> bool {
    OPEN.contains(&row.state)
}
