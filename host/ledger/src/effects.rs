//! Effects on top of a ledger: only events that the state function allows are stored.

mod landing;
mod rows;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::consequences::{self, Consequence};
use crate::{
    Append, Effect, Event, Expect, Illegal, Ledger, LedgerError, Record, StateTag, Stored, StreamId, StreamKind, Tip,
    sha256, state,
};
pub use landing::{Giving, Landing};
use rows::Rows;

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
    rows: Arc<Rows>,
}

impl Effects {
    /// The effects of this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Effects {
        let rows = Arc::new(Rows::of(ledger.identity()));
        Effects { ledger, rows }
    }

    /// The effect with this key, folded from its events; `None` if there never was one.
    ///
    /// # Errors
    /// `Damaged` when its stored events could not have happened.
    pub async fn get(&self, key: [u8; 32]) -> Result<Option<Effect>, LedgerError> {
        if let Some(row) = self.rows.on_the_way(&key) {
            return Ok(Some(Effect::clone(&row)));
        }
        if let Some(kept) = self.rows.kept(&key)
            && kept.is_at(self.tips(&[StreamId::effect(key)]).await?.first().and_then(Option::as_ref))
        {
            return Ok(Some(Effect::clone(&kept.row)));
        }
        let records = self.history(key).await?;
        let row = fold_records(&records)?;
        // Of what is encrypted no text stays here longer than it is needed.
        if let (Some(row), Some(last), true) = (&row, records.last(), self.is_plain()) {
            self.rows.keep(key, &Arc::new(row.clone()), Some(last.digest));
        }
        Ok(row)
    }

    fn is_plain(&self) -> bool {
        self.ledger.private().is_none_or(|private| private.is_plain())
    }

    /// The ends of streams, in their order.
    ///
    /// # Errors
    /// Those of [`Ledger::tips`].
    pub async fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        self.ledger.tips(streams).await
    }

    /// The records of streams that seldom change, in their order. Those that were read and verified before, and end
    /// as they ended then, are not read again.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn records(&self, streams: &[StreamId]) -> Result<Vec<Arc<[Record]>>, LedgerError> {
        let tips = self.tips(streams).await?;
        let mut all = Vec::with_capacity(streams.len());
        for (stream, tip) in streams.iter().zip(tips) {
            all.push(match (tip, self.rows.stream(stream)) {
                (None, _) => Arc::default(),
                (Some(tip), Some(read)) if read.tip == tip => read.records,
                (Some(_), _) => self.records_anew(*stream).await?,
            });
        }
        Ok(all)
    }

    async fn records_anew(&self, stream: StreamId) -> Result<Arc<[Record]>, LedgerError> {
        let records: Arc<[Record]> = self.ledger.read(stream).await?.into();
        if let Some(tip) = Tip::of(&records) {
            self.rows.keep_stream(stream, tip, &records);
        }
        Ok(records)
    }

    /// The effects that have had this receipt, also those to which this process is giving it.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn of_receipt(&self, receipt: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.rows.has_been_given(&receipt).await;
        self.ledger.read(receipt).await
    }

    /// Holds a receipt for an effect, against everybody else in this process.
    pub async fn giving(&self, receipt: StreamId, effect: [u8; 32]) -> Giving {
        Giving::of(&self.rows, vec![(receipt, effect)]).await
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
        self.rows.has_landed(&key).await;
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
        self.store(batch).await?;
        if self.is_plain() {
            self.rows.keep(key, &Arc::new(effect.clone()), None);
        }
        Ok(effect)
    }

    /// As [`Effects::advance`], for an event that follows from what is stored already: gives the row as it will be,
    /// and its landing. None where other rows change with it: they are not told before it is stored.
    ///
    /// Whoever tells of the row before it has landed must hold its receipt ([`Effects::giving`]) from before he read
    /// whose it is, and know that no other process came between ([`Ledger::foreign_appends`]).
    ///
    /// # Errors
    /// `Illegal`: the state function refuses the event.
    pub fn advance_unhurried(
        &self,
        key: [u8; 32],
        current: &Effect,
        event: Event,
        guards: Vec<Append>,
    ) -> Result<Option<(Effect, Landing)>, EffectsError> {
        let at = event.at().unwrap_or_default();
        let (append, effect) = step(key, Some(current), event)?;
        // What was read is checked before what follows from it is written, as it stands in the same streams.
        let mut batch = vec![append];
        batch.extend(guards);
        for consequence in consequences::of(key, Some(current), &effect, at) {
            match consequence {
                Consequence::Also(append) if append.stream.kind == StreamKind::Receipt => batch.push(append),
                _ => return Ok(None),
            }
        }
        let row = Arc::new(effect.clone());
        if !self.rows.sets_out(key, &row) {
            return Ok(None);
        }
        let ledger = Arc::clone(&self.ledger);
        let append = Box::pin(async move { ledger.append_unhurried(batch).await.map(drop) });
        Ok(Some((effect, Landing::new(append, Arc::clone(&self.rows), key, row))))
    }

    /// Appends, and holds the receipts that are given in it meanwhile: who asks whose they are waits for it.
    async fn store(&self, batch: Vec<Append>) -> Result<(), LedgerError> {
        let given = |append: &Append| match append.event {
            Some(Event::ReceiptKnown { effect }) => Some((append.stream, effect)),
            _ => None,
        };
        let _giving = Giving::of(&self.rows, batch.iter().filter_map(given).collect()).await;
        let stored = self.ledger.append(batch).await.map(drop);
        if stored.as_ref().is_err_and(|error| error.refuses_effects()) {
            self.rows.forget();
        }
        stored
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
        self.rows.has_landed(&target).await;
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
        self.raw_answer_in(&self.history(key).await?, attempt).await
    }

    /// The same from the effect's records, as they were read.
    ///
    /// # Errors
    /// Those of [`Effects::raw_answer`].
    pub async fn raw_answer_in(&self, history: &[Record], attempt: [u8; 16]) -> Result<Vec<u8>, LedgerError> {
        let mut parts: Vec<(u64, &Stored)> = Vec::new();
        let mut whole: Option<(&Stored, u64, [u8; 32])> = None;
        for record in history {
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
