//! Step h in the sender's own task: the answer is in memory, and nobody waits for what it comes to to be stored.
//!
//! When the bytes of an answer are durable, what they come to is durable too: it follows from them and from the
//! contract that the row was dispatched under, which the ledger has. So the caller is told at once, and the event
//! `classified` shares the next commit. What could make that a false "done", and why it does not:
//!
//! - *The process ends before the event is stored.* The row is `responded`; whoever looks next judges the same bytes
//!   by the same contract. Nothing is sent meanwhile: `responded` sends nothing.
//! - *Another writer comes first.* Another process that judges the row comes to the same. A revocation that is wished
//!   changes nothing of a fact. Either way this event conflicts, and [`land`] reads the row again and judges it if it
//!   still is not; the readers of this process read what is stored from then on.
//! - *The receipt is another effect's.* That is the one thing that does not follow from the row: two effects may have
//!   been answered with one receipt, and only the first may be told done. So the receipt is held against everybody
//!   in this process from before it is looked up until the event has landed; no other process must have an append
//!   under way or have made one until the event was handed in, after which theirs come behind it and conflict; and
//!   after a crash a receipt is given to nobody before the answers that were left unjudged are judged
//!   ([`settle::judge_leftovers`]). Where one of these cannot be had, the event is waited for.
//! - *The append fails.* Nobody knows whether it was stored; [`land`] tries until the row is judged.
//! - *More follows than the receipt* (another row completes, is undone, a permit gets room): it is waited for, since
//!   those rows are not seen to change before it is stored.
//!
//! The process stays until it has landed: it is one of the host's tasks.

use std::sync::Arc;
use std::time::Duration;

use oncegate_ledger::state::Effect;
use oncegate_ledger::{EffectsError, Event, Giving, Landing, Outcome, StreamId, consequences};

use super::judging::{Judged, judge_bytes};
use super::{AttemptError, Ran, Sending, classify_alone};
use crate::host::{Book, Host};
use crate::{replay, settle};

/// Tries to have a row judged whose event did not land, some ten minutes: a ledger that fails is opened again.
const LAND_TRIES: u32 = 600;
/// Pause between them, growing up to a second.
const LAND_PAUSE: Duration = Duration::from_millis(50);

/// An answer that is stored, as it came.
pub(super) struct Told {
    pub(super) raw: Vec<u8>,
    pub(super) complete: bool,
    pub(super) echoes: bool,
}

/// A row that may be told.
enum Ahead {
    /// Its event is on its way.
    OnTheWay { effect: Effect, landing: Landing, giving: Giving },
    /// It is stored.
    Stored(Effect),
    /// What the answer came to is to be stored first.
    Wait,
}

/// Judges the answer that was just stored.
pub(super) async fn classify(
    host: &Arc<Host>,
    book: &Book,
    sending: &Sending,
    row: Effect,
    told: Told,
) -> Result<Ran, AttemptError> {
    let key = sending.key;
    let later = |effect| Ran { effect, answer: None };
    let alone = row.unclassified_attempt().is_some_and(|one| one.id == sending.attempt) && !row.frozen;
    let Some(dispatch) = row.dispatch.as_deref().filter(|_| alone) else {
        return super::classify(host, book, key, row, sending.secret.as_ref()).await.map(later);
    };
    let contract = host.contract(book, dispatch.contract).await?;
    let judged = match contract.operations.get(&dispatch.operation) {
        Some(operation) => {
            let secret = sending.secret.as_ref();
            judge_bytes(host, operation, &told.raw, told.complete, told.echoes, secret).await
        }
        None => Err("the contract has no such operation".to_owned()),
    };
    let Ok(judged) = judged else {
        return super::classify(host, book, key, row, sending.secret.as_ref()).await.map(later);
    };
    settle::judge_leftovers(host, book, key).await?;
    let Judged { outcome, answer } = judged;
    let effect = match ahead(host, book, sending, &row, &outcome).await? {
        Ahead::OnTheWay { effect, landing, giving } => {
            host.tasks.spawn(land(Arc::clone(host), key, landing, giving));
            effect
        }
        Ahead::Stored(effect) => effect,
        Ahead::Wait => waited_for(host, book, sending, row, outcome).await?,
    };
    let rests = |attempt| replay::decided(&effect, attempt) && !told.echoes;
    let answer = answer.filter(|_| effect.attempt(sending.attempt).is_some_and(rests));
    Ok(Ran { effect, answer })
}

/// Hands the event in without waiting for it, where the row may be told at once.
async fn ahead(
    host: &Host,
    book: &Book,
    sending: &Sending,
    row: &Effect,
    outcome: &Outcome,
) -> Result<Ahead, AttemptError> {
    let (key, ledger) = (sending.key, &book.effects.ledger);
    let Outcome::Done { receipt } = outcome else { return Ok(Ahead::Wait) };
    if !consequences::is_indexed(receipt) {
        return Ok(Ahead::Wait);
    }
    let giving = book.effects.giving(StreamId::receipt(row.account(), receipt), key).await;
    let Some(others) = ledger.foreign_appends() else { return Ok(Ahead::Wait) };
    let (belongs, guards) = settle::belonging(host, book, key, row, outcome.clone()).await?;
    if belongs != *outcome {
        return Ok(Ahead::Wait);
    }
    let event = classified(host, sending, belongs);
    let Some((effect, mut landing)) = book.effects.advance_unhurried(key, row, event, guards)? else {
        return Ok(Ahead::Wait);
    };
    landing.begin();
    if ledger.foreign_appends() == Some(others) {
        return Ok(Ahead::OnTheWay { effect, landing, giving });
    }
    // Somebody may have come between: what is stored decides.
    Ok(landing.landed().await.map_or(Ahead::Wait, |()| Ahead::Stored(effect)))
}

fn classified(host: &Host, sending: &Sending, outcome: Outcome) -> Event {
    Event::Classified { attempt: sending.attempt, at: (host.now)(), outcome }
}

/// Waits until the event is stored; where another writer was first, judges the row as it then is.
async fn waited_for(
    host: &Host,
    book: &Book,
    sending: &Sending,
    row: Effect,
    outcome: Outcome,
) -> Result<Effect, AttemptError> {
    let (key, secret) = (sending.key, sending.secret.as_ref());
    let (outcome, guards) = settle::belonging(host, book, key, &row, outcome).await?;
    match book.effects.advance(key, Some(&row), classified(host, sending, outcome), guards).await {
        Ok(effect) => Ok(effect),
        Err(error) if error.is_conflict() => {
            let row = book.effects.get(key).await.map_err(EffectsError::from)?.unwrap_or(row);
            classify_alone(host, book, key, row, secret).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits for the event; a row that it did not reach is judged until it is. The receipt is held until then.
async fn land(host: Arc<Host>, key: [u8; 32], landing: Landing, giving: Giving) {
    let Err(error) = landing.landed().await else { return };
    tracing::warn!(%error, "what an answer came to was not stored as it was told; it is judged again");
    for pause in 0..LAND_TRIES {
        match judged_again(&host, key).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "an answer that was told is not judged yet"),
        }
        tokio::time::sleep((LAND_PAUSE * (1 + pause)).min(Duration::from_secs(1))).await;
    }
    // Whoever gives a receipt from now on looks first.
    host.leaves_leftovers();
    drop(giving);
}

async fn judged_again(host: &Host, key: [u8; 32]) -> Result<(), AttemptError> {
    let Ok(book) = host.book() else { return Ok(()) };
    match book.effects.get(key).await.map_err(EffectsError::from)? {
        Some(row) => classify_alone(host, book, key, row, None).await.map(drop),
        None => Ok(()),
    }
}
