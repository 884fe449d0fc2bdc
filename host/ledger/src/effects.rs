//! Effects on top of a ledger: only events that the state function allows are stored.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::consequences::{self, Consequence};
use crate::{
    Append, Effect, Event, Expect, Illegal, Ledger, LedgerError, Record, StateTag, Stored, StreamId, sha256, state,
};

/// Why an event was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EffectsError {
    /// The state function refuses it. Nothing was stored.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// The ledger did not store it, or nobody knows whether it did.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl EffectsError {
    /// Whether another writer was first: read the effect again and decide anew.
    pub fn is_conflict(&self) -> bool {
        matches!(self, EffectsError::Ledger(LedgerError::Conflict { .. }))
    }
}

/// The effects of a ledger, by key.
#[derive(Clone)]
pub struct Effects {
    /// Where they are stored.
    pub ledger: Arc<dyn Ledger>,
}

impl Effects {
    /// The effects of this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Effects {
        Effects { ledger }
    }

    /// The effect with this key, folded from its events; `None` if there never was one.
    ///
    /// # Errors
    /// `Damaged` when its stored events could not have happened.
    pub async fn get(&self, key: [u8; 32]) -> Result<Option<Effect>, LedgerError> {
        fold_records(&self.history(key).await?)
    }

    /// Its records, in order.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn history(&self, key: [u8; 32]) -> Result<Vec<Record>, LedgerError> {
        self.ledger.read(StreamId::effect(key)).await
    }

    /// Stores an event of the effect at `expected_version`, and `also` other appends in the same
    /// commit. Returns the effect after it, when it is durable.
    ///
    /// # Errors
    /// `Illegal`: the state function refuses the event. `Conflict`: the effect is at another version.
    /// Otherwise those of [`Ledger::append`].
    pub async fn append(
        &self,
        key: [u8; 32],
        expected_version: u64,
        event: Event,
        also: Vec<Append>,
    ) -> Result<Effect, EffectsError> {
        let current = self.get(key).await?;
        let found = current.as_ref().map_or(0, |effect| effect.version);
        if found != expected_version {
            let stream = StreamId::effect(key);
            let expected = Expect::Version(expected_version);
            return Err(LedgerError::Conflict { stream, expected, found }.into());
        }
        self.advance(key, current.as_ref(), event, also).await
    }

    /// As [`Effects::append`], for a caller that holds the effect as last read.
    ///
    /// # Errors
    /// Those of [`Effects::append`].
    pub async fn advance(
        &self,
        key: [u8; 32],
        current: Option<&Effect>,
        event: Event,
        also: Vec<Append>,
    ) -> Result<Effect, EffectsError> {
        self.advance_twice(key, current, event, None, also).await
    }

    /// As [`Effects::advance`], with a second event behind the first in the same commit.
    ///
    /// # Errors
    /// Those of [`Effects::append`].
    pub async fn advance_twice(
        &self,
        key: [u8; 32],
        current: Option<&Effect>,
        first: Event,
        second: Option<Event>,
        also: Vec<Append>,
    ) -> Result<Effect, EffectsError> {
        let mut at = first.at().unwrap_or_default();
        let (append, mut effect) = step(key, current, first)?;
        let mut batch = vec![append];
        let mut follow: VecDeque<_> = consequences::of(key, current, &effect, at).into();
        if let Some(second) = second {
            at = second.at().unwrap_or(at);
            let (append, after) = step(key, Some(&effect), second)?;
            batch.push(append);
            follow.extend(consequences::of(key, Some(&effect), &after, at));
            effect = after;
        }
        batch.extend(also);
        while let Some(consequence) = follow.pop_front() {
            match consequence {
                Consequence::Also(append) => batch.push(append),
                Consequence::Completes { target, receipt } => {
                    let event = |row: &Effect| Event::Completed {
                        at,
                        receipt: row.receipt.clone().or(receipt.clone()),
                        evidence: Stored::empty(),
                    };
                    let over =
                        |row: &Effect| matches!(row.state, StateTag::Done | StateTag::Undone | StateTag::Superseded);
                    self.follow(target, over, event, at, &mut batch, &mut follow).await?;
                }
                Consequence::Undoes { target } => {
                    let event = |_: &Effect| Event::Undone { by: key, at };
                    // One that was superseded exists as well, until it is undone.
                    let over = |row: &Effect| match &row.superseded_by {
                        Some(later) => later.before != StateTag::Done,
                        None => row.state == StateTag::Undone,
                    };
                    self.follow(target, over, event, at, &mut batch, &mut follow).await?;
                }
            }
        }
        self.ledger.append(batch).await?;
        Ok(effect)
    }

    /// Leaves a tombstone of each of these effects, as last read, in one commit. Their records stay
    /// until [`Ledger::forget`] is told of their streams.
    ///
    /// # Errors
    /// Those of [`Effects::advance`]; nothing was stored then.
    pub async fn bury(&self, rows: &[([u8; 32], Effect)], at: u64) -> Result<(), EffectsError> {
        let mut batch = Vec::with_capacity(rows.len());
        for (key, row) in rows {
            let tombstone = row.to_tombstone(at)?;
            batch.push(step(*key, Some(row), Event::Pruned(Box::new(tombstone)))?.0);
        }
        self.ledger.append(batch).await?;
        Ok(())
    }

    /// Adds to the batch what another row must say, unless it has said so; where its state does not
    /// allow that, the contradiction is kept.
    async fn follow(
        &self,
        target: [u8; 32],
        over: impl Fn(&Effect) -> bool,
        event: impl Fn(&Effect) -> Event,
        at: u64,
        batch: &mut Vec<Append>,
        further: &mut VecDeque<Consequence>,
    ) -> Result<(), EffectsError> {
        let Some(row) = self.get(target).await?.filter(|row| !over(row)) else { return Ok(()) };
        let stepped = step(target, Some(&row), event(&row)).or_else(|illegal| {
            let why = format!("another effect says otherwise: {illegal}");
            step(target, Some(&row), Event::Diverged { at, why, evidence: Stored::empty() })
        });
        let (append, after) = stepped?;
        batch.push(append);
        further.extend(consequences::of(target, Some(&row), &after, at));
        Ok(())
    }

    /// The raw answer of an attempt: its evidence and what came after, verified against the digest
    /// it was stored with. For an attempt that has not ended, what has arrived so far.
    ///
    /// # Errors
    /// `Damaged` when the parts do not make the answer that was stored; `Gone` after retention.
    pub async fn raw_answer(&self, key: [u8; 32], attempt: [u8; 16]) -> Result<Vec<u8>, LedgerError> {
        let mut parts: Vec<(u64, &Stored)> = Vec::new();
        let mut whole: Option<(&Stored, u64, [u8; 32])> = None;
        let history = self.history(key).await?;
        for record in &history {
            match &record.event {
                Event::Evidence { attempt: id, offset, bytes, .. } if *id == attempt => parts.push((*offset, bytes)),
                Event::Responded { attempt: id, head_and_tail, total, digest, .. } if *id == attempt => {
                    whole = Some((head_and_tail, *total, *digest));
                }
                _ => {}
            }
        }
        parts.sort_by_key(|(offset, _)| *offset);
        let mut answer = Vec::new();
        for (offset, bytes) in parts {
            self.join(&mut answer, offset, bytes).await?;
        }
        if let Some((tail, total, digest)) = whole {
            // Counted from the end: evidence that was stored late overlaps it.
            self.join(&mut answer, total.saturating_sub(tail.len()), tail).await?;
            if answer.len() as u64 != total || sha256(&answer) != digest {
                return Err(LedgerError::damaged("the parts of a raw answer do not make the whole"));
            }
        }
        Ok(answer)
    }

    /// Adds a part at its offset. The same bytes twice are one part: a host that was not told
    /// whether its evidence was stored may have stored it again.
    async fn join(&self, answer: &mut Vec<u8>, offset: u64, part: &Stored) -> Result<(), LedgerError> {
        let bytes = self.ledger.load(part).await?;
        let known = usize::try_from(offset).ok().and_then(|offset| answer.get(offset..));
        let overlap = known.map_or(0, |known| known.len().min(bytes.len()));
        match known {
            Some(known) if known[..overlap] == bytes[..overlap] => {
                answer.extend_from_slice(&bytes[overlap..]);
                Ok(())
            }
            Some(_) => Err(LedgerError::damaged("two parts of a raw answer contradict each other")),
            None => Err(LedgerError::damaged("a part of a raw answer is missing")),
        }
    }
}

/// The append of an event to an effect as last read, and the effect after it: for a caller that
/// builds a batch over several effects itself.
///
/// # Errors
/// [`Illegal`] when the state function refuses the event.
pub fn step(key: [u8; 32], current: Option<&Effect>, event: Event) -> Result<(Append, Effect), Illegal> {
    let effect = state::next(current, &event)?;
    let append = Append {
        stream: StreamId::effect(key),
        expect: Expect::Version(current.map_or(0, |effect| effect.version)),
        state: Some(effect.state),
        marks_head: matches!(event, Event::Dispatched(_)),
        event: Some(event),
    };
    Ok((append, effect))
}

/// Folds the records of one effect.
///
/// # Errors
/// `Damaged` when they could not have happened in this order.
pub fn fold_records(records: &[Record]) -> Result<Option<Effect>, LedgerError> {
    let effect = state::fold(records.iter().map(|record| &record.event));
    let mut effect = effect.map_err(|illegal| {
        let stream = records.first().map(|record| record.stream.to_string()).unwrap_or_default();
        LedgerError::damaged(format!("the stored history of {stream} is impossible: {illegal}"))
    })?;
    // A pruned stream goes on counting where its dropped records ended.
    if let (Some(effect), Some(last)) = (&mut effect, records.last()) {
        effect.version = last.version;
    }
    Ok(effect)
}
