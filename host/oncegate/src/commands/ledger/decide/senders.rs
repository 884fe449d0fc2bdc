//! Whether the senders of an effect's attempts can still send.

use std::sync::Arc;

use anyhow::Context;
use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::state::{Attempt, Effect};
use oncegate_ledger::{Effects, Event, Ledger, StreamId};

use crate::home::now_ms;
use crate::print::hex;

/// Bytes of a host's name that are shown.
const SHORT_BYTES: usize = 6;

/// Its process has ended, or an operator fenced it.
pub(in crate::commands::ledger) async fn has_stopped(ledger: &Arc<dyn Ledger>, host: [u8; 16]) -> anyhow::Result<bool> {
    if Hosts::of(&ledger.identity()).stopped(host) == Stopped::Yes {
        return Ok(true);
    }
    let records = ledger.read(StreamId::host(host)).await.context("the fences cannot be read")?;
    Ok(records.iter().any(|record| matches!(record.event, Event::HostFenced { .. })))
}

/// Records the senders that are known to have stopped and are not on record as such.
pub(in crate::commands::ledger) async fn note_stops(
    effects: &Effects,
    key: [u8; 32],
    row: Effect,
) -> anyhow::Result<Effect> {
    let mut row = row;
    let loose: Vec<Attempt> = row.attempts.iter().filter(|attempt| is_loose(attempt)).cloned().collect();
    for attempt in loose.into_iter().filter(|attempt| !attempt.responded) {
        if !has_stopped(&effects.ledger, attempt.host).await? {
            continue;
        }
        let why = "its sender has stopped".to_owned();
        let event = Event::Lost { attempt: attempt.id, at: now_ms(), why, sender_stopped: true };
        row = effects.advance(key, Some(&row), event, Vec::new()).await.context("a stop could not be recorded")?;
    }
    Ok(row)
}

fn is_loose(attempt: &Attempt) -> bool {
    !attempt.stopped && !attempt.proof
}

/// Which sender may still send, and how that is ended.
pub(super) fn may_still_send(row: &Effect) -> Option<String> {
    let attempt = row.attempts.iter().find(|attempt| is_loose(attempt))?;
    let host = attempt.host.get(..SHORT_BYTES).map(hex).unwrap_or_default();
    Some(format!(
        "the sender of attempt {} is not known to have stopped: end its process, or say that it sends no more with \
         `oncegate ledger fence {host} --reason …`",
        hex(attempt.id.get(..4).unwrap_or_default())
    ))
}
