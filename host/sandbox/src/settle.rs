//! Finding out: the lookup that tells whether an effect exists, and what may be concluded from it.
//!
//! The contract that a row was dispatched under rules here, not today's. What cannot be found is
//! unknown; it is absent only under all the conditions of rule 4.

mod epochs;
mod leftovers;
mod receipts;
mod rule;
mod schedule;

use std::sync::Arc;

use oncegate_contract::Matches;
use oncegate_ledger::state::{Answer, Effect, Sender, StateTag};
use oncegate_ledger::{Dispatch, EffectsError, Event, SettleVerdict};
use tokio::time::sleep;

use crate::attempt::{self, AttemptError, advance_or_race, decode};
use crate::host::{Book, Host};
use crate::perform::completing;

pub(crate) use epochs::heard_by;
pub(crate) use leftovers::judge_leftovers;
pub(crate) use receipts::belonging;
pub(crate) use rule::{Rule, Seen, Sought};
pub(crate) use schedule::round;
pub use schedule::{LOOKS_MAX, Looked, Rounds};

/// Steps in bringing one row up to date; each learns something new.
const STEPS_MAX: usize = 12;

/// How long the observer will wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A caller waits.
    Brief,
    /// An operator waits until it can be known.
    Long,
}

/// What a look came to.
pub(crate) enum Settled {
    /// The row has changed.
    Changed,
    /// It has not, and why.
    Open(String),
}

/// Looks for an effect that nobody knows of, and records what was found.
pub(crate) async fn settle(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    component: &[u8; 32],
    patience: Patience,
) -> Result<Settled, AttemptError> {
    host.learn_fences(book, row).await;
    let noted = note_stops(host, book, key, row).await?;
    let row = noted.as_ref().unwrap_or(row);
    if row.unclassified_attempt().is_some() {
        return Ok(Settled::Changed);
    }
    let Some(rule) = rule_of(host, book, key, row, component).await? else {
        return Ok(Settled::Open("nothing was sent".to_owned()));
    };
    judge_leftovers(host, book, key).await?;
    let mut seen = rule.look().await?;
    if let (Ok(Seen { wait: Some(wait), .. }), Patience::Long) = (&seen, patience) {
        sleep(*wait).await;
        seen = rule.look().await?;
    }
    let Seen { matches, found, guard, .. } = match seen {
        Ok(seen) => seen,
        Err(why) => return Ok(Settled::Open(why)),
    };
    let verdict = match matches {
        Matches::One { receipt, mismatched } => SettleVerdict::One { receipt, mismatched },
        Matches::Many { receipts } => SettleVerdict::Many { receipts },
        Matches::Undetermined { why } => return Ok(Settled::Open(why)),
        Matches::Absent => match rule.absent(row, patience).await? {
            Ok(verdict) => verdict,
            Err(why) => return Ok(Settled::Open(why)),
        },
    };
    let event = Event::Settled { at: (host.now)(), by: "settle rule".to_owned(), verdict, evidence: found.raw.into() };
    advance_or_race(book, key, row, event, guard.into_iter().collect()).await?;
    Ok(Settled::Changed)
}

/// The rule of the contract that a row was dispatched under.
async fn rule_of<'a>(
    host: &'a Host,
    book: &'a Book,
    key: [u8; 32],
    row: &Effect,
    component: &[u8; 32],
) -> Result<Option<Rule<'a>>, AttemptError> {
    let Some(dispatch) = row.dispatch.as_deref() else { return Ok(None) };
    let contract = host.contract(book, dispatch.contract).await?;
    let stored = match book.effects.ledger.load(&dispatch.fields).await {
        Ok(stored) => stored,
        Err(error) if error.withholds_bytes() => {
            return Err(AttemptError::Unreadable { what: "what was sent", why: error.to_string() });
        }
        Err(error) => return Err(EffectsError::from(error).into()),
    };
    let sought = Sought {
        key,
        tenant: dispatch.tenant.clone(),
        account: dispatch.account.clone(),
        owner: dispatch.owner.clone(),
        operation: dispatch.operation.clone(),
        downstream_key: dispatch.downstream_key.clone(),
        resolved: decode(&stored)?,
    };
    Ok(Some(Rule { host, book, contract, component: *component, sought }))
}

/// Records the senders that have stopped since their attempts were given up, with what they stored of an
/// answer: what is absent can only be said once that is known of each. Gives the row as it then is, if it has changed.
async fn note_stops(host: &Host, book: &Book, key: [u8; 32], row: &Effect) -> Result<Option<Effect>, AttemptError> {
    let given_up = row.attempts.iter().filter(|attempt| attempt.ended.is_some() && !attempt.stopped && !attempt.proof);
    let mut noted = None;
    for attempt in given_up.filter(|attempt| host.sender_of(book, attempt) == Sender::Stopped) {
        let event = match attempt::evidence::as_answer(host, book, key, row, attempt.id).await? {
            Some(answer) => answer,
            None => {
                let why = "its sender has stopped".to_owned();
                Event::Lost { attempt: attempt.id, at: (host.now)(), why, sender_stopped: true }
            }
        };
        noted = Some(attempt::push(&book.effects, key, event).await?);
    }
    Ok(noted)
}

/// True for a row whose receipt rests on the provider's word alone (rule 7).
pub(crate) fn wants_confirmation(row: &Effect) -> bool {
    let rests = |dispatch: &Dispatch| dispatch.irreversible && !dispatch.provider_dedupes;
    row.state == StateTag::Done && !row.confirmed && row.dispatch.as_deref().is_some_and(rests)
}

/// Looks once for a receipt that was given; a look that does not find it changes nothing.
pub(crate) async fn confirm(host: Arc<Host>, key: [u8; 32], component: [u8; 32]) {
    let Ok(book) = host.book() else { return };
    if let Err(error) = confirm_row(&host, book, key, component).await {
        tracing::warn!(%error, "a receipt was not confirmed");
    }
}

async fn confirm_row(host: &Host, book: &Book, key: [u8; 32], component: [u8; 32]) -> Result<(), AttemptError> {
    let Some(row) = book.effects.get(key).await.map_err(EffectsError::from)? else { return Ok(()) };
    if !wants_confirmation(&row) {
        return Ok(());
    }
    let rule = match rule_of(host, book, key, &row, &component).await {
        Ok(rule) => rule,
        // Without what was sent there is nothing to look with; what is known stays.
        Err(AttemptError::Unreadable { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(rule) = rule else { return Ok(()) };
    let at = (host.now)();
    let Ok(Seen { matches, found, .. }) = rule.look().await? else { return Ok(()) };
    let event = match matches {
        Matches::One { receipt, .. } if Some(&receipt) == row.receipt.as_ref() => Event::Confirmed { at, receipt },
        Matches::One { .. } | Matches::Many { .. } => {
            let why = "the provider's list shows another object, or more than one".to_owned();
            Event::Diverged { at, why, evidence: found.raw.into() }
        }
        Matches::Absent | Matches::Undetermined { .. } => return Ok(()),
    };
    advance_or_race(book, key, &row, event, Vec::new()).await
}

/// Brings one row as far as it can be known: lost senders, stored answers, lookups, confirmation.
pub(crate) async fn refresh(
    host: &Arc<Host>,
    book: &Book,
    key: [u8; 32],
    component: Option<&[u8; 32]>,
    patience: Patience,
) -> Result<Option<Effect>, AttemptError> {
    refresh_saying(host, book, key, component, patience).await.map(|(row, _)| row)
}

/// As [`refresh`], and why a look did not settle the row.
pub(crate) async fn refresh_saying(
    host: &Arc<Host>,
    book: &Book,
    key: [u8; 32],
    component: Option<&[u8; 32]>,
    patience: Patience,
) -> Result<(Option<Effect>, Option<String>), AttemptError> {
    let mut settled = false;
    for _ in 0..STEPS_MAX {
        let Some(row) = book.effects.get(key).await.map_err(EffectsError::from)? else { return Ok((None, None)) };
        host.learn_fences(book, &row).await;
        if completing::strand(host, book, key, &row).await? {
            continue;
        }
        if row.frozen {
            host.saw_frozen(key, row.account());
        }
        let sender = host.sender(book, &row);
        let component = component
            .copied()
            .or_else(|| row.dispatch.as_deref().map(|dispatch| dispatch.component))
            .unwrap_or_default();
        match oncegate_ledger::state::answer(Some(&row), &[], sender) {
            Answer::SenderLost => {
                attempt::lost(host, book, key, &row, sender == Sender::Stopped).await?;
            }
            Answer::Classify => {
                attempt::classify(host, book, key, row, None).await?;
            }
            Answer::Settle | Answer::Issued if !std::mem::replace(&mut settled, true) => {
                if let Settled::Open(why) = settle(host, book, key, &row, &component, patience).await? {
                    tracing::info!(label = row.label(), %why, "not settled");
                    return Ok((Some(row), Some(why)));
                }
            }
            Answer::Replay if patience == Patience::Long && wants_confirmation(&row) => {
                confirm_row(host, book, key, component).await?;
                return Ok((book.effects.get(key).await.map_err(EffectsError::from)?, None));
            }
            _ => return Ok((Some(row), None)),
        }
    }
    Ok((book.effects.get(key).await.map_err(EffectsError::from)?, None))
}
