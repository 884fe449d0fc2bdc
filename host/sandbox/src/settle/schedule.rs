//! Settling by itself: what stopped senders left open, a few looks at a time and ever more seldom.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncegate_ledger::state::{Effect, Sender, StateTag};
use oncegate_ledger::{StreamId, StreamKind};
use tokio::task::JoinSet;

use super::{Patience, refresh_saying};
use crate::host::{Book, Host};

/// Looks in one round: a provider that is in trouble is not asked for everything at once.
pub const LOOKS_MAX: usize = 64;
/// Looks that run at the same time.
const AT_ONCE_MAX: usize = 8;
/// After a first look that settled nothing.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// Each wait is twice the one before, up to this.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
/// Open rows whose waits are kept; the rest is due in every round, within its budget.
const WAITS_MAX: usize = 100_000;
/// Keys read in one page.
const PAGE: usize = 256;
/// States in which somebody has to find out.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

/// When each open row is looked at again. Time that passed is this process's own.
#[derive(Debug, Default)]
pub struct Rounds {
    waits: HashMap<[u8; 32], Wait>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    then: Duration,
}

impl Rounds {
    fn is_due(&self, key: &[u8; 32], now: Instant) -> bool {
        self.waits.get(key).is_none_or(|wait| wait.until <= now)
    }

    /// After a look that settled nothing.
    fn later(&mut self, key: [u8; 32], now: Instant) {
        if self.waits.len() >= WAITS_MAX {
            self.waits.retain(|_, wait| wait.until > now);
            if self.waits.len() >= WAITS_MAX {
                return;
            }
        }
        let then = self.waits.get(&key).map_or(WAIT_FIRST, |wait| wait.then);
        self.waits.insert(key, Wait { until: now + then, then: (then * 2).min(WAIT_MAX) });
    }

    fn settled(&mut self, key: &[u8; 32]) {
        self.waits.remove(key);
    }
}

/// What came of one look.
#[derive(Debug)]
pub struct Looked {
    /// The key.
    pub key: [u8; 32],
    /// The row before.
    pub before: Effect,
    /// The row after, if it could be read.
    pub after: Result<Option<Effect>, String>,
    /// Why the look did not settle it.
    pub why: Option<String>,
}

impl Looked {
    /// True when somebody still has to find out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.after {
            Ok(Some(row)) => OPEN.contains(&row.state) && !row.frozen,
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// One round: looks at rows that are due and whose senders have stopped, at most so many.
pub(crate) async fn round(
    host: &Arc<Host>,
    book: &Book,
    rounds: &mut Rounds,
    looks_max: usize,
) -> Result<Vec<Looked>, String> {
    let due = due(host, book, rounds, looks_max).await?;
    let mut looked = Vec::new();
    let mut waiting = due.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_ONCE_MAX
            && let Some((key, before)) = waiting.next()
        {
            running.spawn(look(Arc::clone(host), key, before));
        }
        let Some(one) = running.join_next().await else { break };
        let one = one.map_err(|error| format!("a look was interrupted: {error}"))?;
        if one.is_open() {
            rounds.later(one.key, Instant::now());
        } else {
            rounds.settled(&one.key);
        }
        looked.push(one);
    }
    Ok(looked)
}

async fn look(host: Arc<Host>, key: [u8; 32], before: Effect) -> Looked {
    let (after, why) = match host.book() {
        Ok(book) => match refresh_saying(&host, book, key, None, Patience::Brief).await {
            Ok((row, why)) => (Ok(row.map(Effect::without_bytes)), why),
            Err(error) => (Err(error.to_string()), None),
        },
        Err(stop) => (Err(stop.to_string()), None),
    };
    Looked { key, before, after, why }
}

/// Open rows that nobody works on, and that nothing but a person could settle left out.
async fn due(host: &Host, book: &Book, rounds: &Rounds, looks_max: usize) -> Result<Vec<([u8; 32], Effect)>, String> {
    let now = Instant::now();
    let mut due = Vec::new();
    for state in OPEN {
        let mut after: Option<StreamId> = None;
        while due.len() < looks_max {
            let page = book.effects.ledger.list(state, after, PAGE).await.map_err(|error| error.to_string())?;
            let Some(last) = page.last().copied() else { break };
            after = Some(last);
            for id in page.iter().filter(|id| id.kind == StreamKind::Effect && rounds.is_due(&id.id, now)) {
                let row = book.effects.get(id.id).await.map_err(|error| error.to_string())?;
                let row = row.filter(|row| !row.frozen && host.sender(book, row) == Sender::Stopped);
                due.extend(row.map(|row| (id.id, row.without_bytes())));
                if due.len() >= looks_max {
                    break;
                }
            }
        }
    }
    Ok(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_a_second_to_an_hour() {
        let mut rounds = Rounds::default();
        let start = Instant::now();
        let key = [7; 32];
        assert!(rounds.is_due(&key, start));
        let mut at = start;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600] {
            rounds.later(key, at);
            let wait = Duration::from_secs(seconds);
            assert!(!rounds.is_due(&key, at + wait - Duration::from_millis(1)), "{seconds} s");
            assert!(rounds.is_due(&key, at + wait), "{seconds} s");
            at += wait;
        }
        rounds.settled(&key);
        assert!(rounds.is_due(&key, start));
        rounds.later(key, start);
        assert!(rounds.is_due(&key, start + WAIT_FIRST));
    }
}
