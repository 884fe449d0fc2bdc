//! How many effects there are in which state, and since when: asked of the ledger itself, so that it is right on
//! every host and after every start.
//!
//! Rows that are not settled are few, and all of them are looked at each time. Those that are settled may be many
//! millions: they are counted page by page over several rounds, and a count is told when it is complete.

use std::collections::{BTreeSet, HashMap};

use oncegate_ledger::hosts::Stopped;
use oncegate_ledger::state::StateTag;
use oncegate_ledger::{LedgerError, PAGE_MAX, StreamId, StreamKind};

use super::family::{Family, Kind, Series, Value};
use crate::host::{Book, Host};
use crate::sandbox::Sandbox;

/// States in which something is still to come.
const UNSETTLED: [StateTag; 7] = [
    StateTag::Planned,
    StateTag::AwaitingApproval,
    StateTag::Dispatched,
    StateTag::Responded,
    StateTag::Issued,
    StateTag::Stranded,
    StateTag::Unknown,
];
/// The others.
const SETTLED: [StateTag; 5] =
    [StateTag::Done, StateTag::NoEffect, StateTag::Undone, StateTag::Revoked, StateTag::Superseded];
/// Unsettled rows of one state that are looked at in one round; more are counted as so many.
const ROWS_MAX: usize = 20_000;
/// Rows that are read in one round, each a read of its stream; the others are read in the next.
const READS_MAX: usize = 1_000;
/// Pages of settled rows in one round, of a thousand keys each: some ten milliseconds of a core.
const PAGES_MAX: usize = 32;
/// Settled rows that are read, once, to find those that were frozen before this process began.
const FIRST_LOOK_MAX: usize = 100_000;
/// Frozen rows that are followed.
const FROZEN_MAX: usize = 10_000;
/// Locks of hosts that are looked at in one round.
const HOSTS_MAX: usize = 1_000;

/// What was counted last.
#[derive(Default)]
pub(super) struct Counted {
    states: Vec<(StateTag, usize)>,
    /// When the oldest unsettled row came to its state, in milliseconds since the Unix epoch.
    oldest: Vec<(StateTag, Option<u64>)>,
    frozen: usize,
    hosts: [usize; 3],
    /// Now, in the same milliseconds.
    at: u64,
    now: Option<crate::host::Clock>,
}

impl Counted {
    pub(super) fn families(&self) -> Vec<Family> {
        let Some(now) = &self.now else { return Vec::new() };
        let now = now();
        let states = self.states.iter().map(|(state, count)| number("state", state.as_str(), *count as f64));
        let ages = self.oldest.iter().map(|(state, since)| number("state", state.as_str(), age(*since, now)));
        let hosts = ["running", "stopped", "not_known"].iter().zip(self.hosts);
        let hosts = hosts.map(|(word, count)| number("state", word, count as f64)).collect();
        vec![
            gauge("oncegate_effects", "Effects in the ledger, by state.", states.collect()),
            gauge(
                "oncegate_effects_oldest_age_seconds",
                "How long the oldest effect has been in this state; 0 where there is none.",
                ages.collect(),
            ),
            Family::number(
                "oncegate_effects_frozen",
                "Effects that only an operator goes on with.",
                self.frozen as f64,
            ),
            gauge("oncegate_hosts", "Hosts of the ledger that are known here, by whether they run.", hosts),
            Family::number(
                "oncegate_effects_counted_timestamp_seconds",
                "When the ledger was last asked for all this.",
                self.at as f64 / 1_000.0,
            ),
        ]
    }
}

fn gauge(name: &'static str, help: &'static str, series: Vec<Series>) -> Family {
    Family::new(name, help, Kind::Gauge, series)
}

fn number(label: &'static str, word: &str, number: f64) -> Series {
    Series::of(&[(label, word)], Value::Number(number))
}

fn age(since: Option<u64>, now: u64) -> f64 {
    since.map_or(0.0, |since| now.saturating_sub(since) as f64 / 1_000.0)
}

/// What a census remembers between its rounds.
#[derive(Default)]
pub struct Census {
    rows: HashMap<[u8; 32], Row>,
    frozen: BTreeSet<[u8; 32]>,
    settled: Vec<(StateTag, usize)>,
    sweep: Sweep,
    first_look: usize,
}

/// An unsettled row, as it was at this version.
#[derive(Clone, Copy)]
struct Row {
    version: u64,
    since: u64,
    frozen: bool,
}

/// A count of settled rows that is under way.
#[derive(Default)]
struct Sweep {
    state: usize,
    after: Option<StreamId>,
    counts: [usize; SETTLED.len()],
}

impl Sandbox {
    /// One round: the figures are in the meter afterwards.
    ///
    /// # Errors
    /// Without a ledger, or when it cannot be read: what was counted before goes on to be told, with its time.
    pub async fn count(&self, census: &mut Census) -> Result<(), String> {
        let book = self.host.book().map_err(|stop| stop.to_string())?;
        census.round(&self.host, book).await.map_err(|error| error.to_string())
    }
}

impl Census {
    async fn round(&mut self, host: &Host, book: &Book) -> Result<(), LedgerError> {
        let mut counted = Counted { at: (host.now)(), now: Some(host.now.clone()), ..Counted::default() };
        let mut rows = HashMap::new();
        let mut reads = READS_MAX;
        for state in UNSETTLED {
            let keys = keys(book, state).await?;
            let oldest = self.look(book, &keys, &mut rows, &mut reads).await?;
            counted.states.push((state, keys.len()));
            counted.oldest.push((state, oldest));
        }
        self.rows = rows;
        self.sweep(book).await?;
        counted.states.extend(&self.settled);
        counted.frozen = self.frozen(host, book).await?;
        counted.hosts = hosts(book);
        *host.meter.counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = counted;
        Ok(())
    }

    /// Reads those rows of one state that are other than they were. Gives since when the oldest is in it.
    async fn look(
        &mut self,
        book: &Book,
        keys: &[[u8; 32]],
        rows: &mut HashMap<[u8; 32], Row>,
        reads: &mut usize,
    ) -> Result<Option<u64>, LedgerError> {
        let mut oldest: Option<u64> = None;
        for page in keys.chunks(PAGE_MAX) {
            let streams: Vec<_> = page.iter().map(|key| StreamId::effect(*key)).collect();
            for (key, tip) in page.iter().zip(book.effects.tips(&streams).await?) {
                let known = self.rows.get(key).filter(|row| tip.is_some_and(|tip| tip.version == row.version));
                let row = match known {
                    Some(row) => Some(*row),
                    None if *reads == 0 => None,
                    None => {
                        *reads -= 1;
                        let row = book.effects.get(*key).await?;
                        row.map(|row| Row { version: row.version, since: row.state_since, frozen: row.frozen })
                    }
                };
                let Some(row) = row else { continue };
                if row.frozen && self.frozen.len() < FROZEN_MAX {
                    self.frozen.insert(*key);
                }
                oldest = Some(oldest.map_or(row.since, |oldest| oldest.min(row.since)));
                rows.insert(*key, row);
            }
        }
        Ok(oldest)
    }

    /// Goes on counting what is settled. What is counted first is also read.
    async fn sweep(&mut self, book: &Book) -> Result<(), LedgerError> {
        let is_first = self.settled.is_empty();
        let mut reads = READS_MAX;
        for _ in 0..PAGES_MAX {
            let Some(state) = SETTLED.get(self.sweep.state) else { break };
            if is_first && reads == 0 && self.first_look < FIRST_LOOK_MAX {
                return Ok(());
            }
            let room = if is_first && self.first_look < FIRST_LOOK_MAX { reads } else { PAGE_MAX };
            let page = book.effects.ledger.list(*state, self.sweep.after, room).await?;
            let Some(last) = page.last() else {
                (self.sweep.state, self.sweep.after) = (self.sweep.state + 1, None);
                continue;
            };
            self.sweep.after = Some(*last);
            let keys: Vec<_> = page.iter().filter(|id| id.kind == StreamKind::Effect).map(|id| id.id).collect();
            self.sweep.counts[self.sweep.state] += keys.len();
            if is_first && self.first_look < FIRST_LOOK_MAX {
                reads = reads.saturating_sub(page.len());
                self.first_look += page.len();
                self.find_frozen(book, &keys).await?;
            }
        }
        if self.sweep.state >= SETTLED.len() {
            self.settled = SETTLED.into_iter().zip(self.sweep.counts).collect();
            self.sweep = Sweep::default();
        }
        Ok(())
    }

    async fn find_frozen(&mut self, book: &Book, keys: &[[u8; 32]]) -> Result<(), LedgerError> {
        for key in keys {
            if book.effects.get(*key).await?.is_some_and(|row| row.frozen) && self.frozen.len() < FROZEN_MAX {
                self.frozen.insert(*key);
            }
        }
        Ok(())
    }

    /// How many of the rows that were seen frozen still are.
    async fn frozen(&mut self, host: &Host, book: &Book) -> Result<usize, LedgerError> {
        self.frozen.extend(host.meter.take_frozen());
        let mut still = BTreeSet::new();
        for key in std::mem::take(&mut self.frozen).into_iter().take(FROZEN_MAX) {
            if book.effects.get(key).await?.is_some_and(|row| row.frozen) {
                still.insert(key);
            }
        }
        self.frozen = still;
        Ok(self.frozen.len())
    }
}

/// The effects in a state, some of them where there are very many.
async fn keys(book: &Book, state: StateTag) -> Result<Vec<[u8; 32]>, LedgerError> {
    let (mut keys, mut after) = (Vec::new(), None);
    while keys.len() < ROWS_MAX {
        let page = book.effects.ledger.list(state, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        keys.extend(page.iter().filter(|id| id.kind == StreamKind::Effect).map(|id| id.id));
    }
    Ok(keys)
}

/// How many hosts run, have stopped, and of how many that is not known.
fn hosts(book: &Book) -> [usize; 3] {
    let mut counts = [0; 3];
    for host in book.hosts.known().unwrap_or_default().into_iter().take(HOSTS_MAX) {
        let place = match book.hosts.stopped(host) {
            _ if host == book.me.id() => 0,
            Stopped::No => 0,
            Stopped::Yes => 1,
            Stopped::NotKnown => 2,
        };
        counts[place] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_counted_once() {
        let all: BTreeSet<_> = UNSETTLED.into_iter().chain(SETTLED).collect();
        assert_eq!((all.len(), UNSETTLED.len() + SETTLED.len()), (StateTag::ALL.len(), StateTag::ALL.len()));
    }

    #[test]
    fn an_age_is_in_seconds_and_never_below_nothing() {
        assert_eq!((age(None, 9_000), age(Some(1_500), 9_000), age(Some(10_000), 9_000)), (0.0, 7.5, 0.0));
    }
}
