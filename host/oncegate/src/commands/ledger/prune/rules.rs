//! Which effects may be pruned, and why the others may not.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Event, Ledger, Record, StreamId};
use serde_json::Value;

use super::is_unfinished;
use crate::args::decide::Prune;
use crate::commands::settling::Contracts;
use crate::exit::usage;

/// States that nothing but a new decision changes.
pub(super) const STATES: [StateTag; 5] =
    [StateTag::Done, StateTag::NoEffect, StateTag::Revoked, StateTag::Superseded, StateTag::Undone];
/// Clocks differ by so much at most; it is added to the provider's window.
const CLOCK_ERROR: Duration = Duration::from_secs(300);

/// Why an effect stays whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    Frozen,
    ReplayWindow,
    DedupeWindow,
    Younger,
    ParentOpen,
    NoParent,
    Tombstone,
}

impl Kept {
    fn words(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::ReplayWindow => "inside the replay window",
            Self::DedupeWindow => "inside the provider's window",
            Self::Younger => "younger than --before",
            Self::ParentOpen => "of a parent that is not closed",
            Self::NoParent => "without a parent",
            Self::Tombstone => "pruned before",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::ReplayWindow => "replay_window",
            Self::DedupeWindow => "dedupe_window",
            Self::Younger => "younger",
            Self::ParentOpen => "parent_open",
            Self::NoParent => "no_parent",
            Self::Tombstone => "pruned_before",
        }
    }
}

/// How many stay, by why.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<Kept, u64>);

impl Counts {
    pub(super) fn add(&mut self, why: Kept) {
        *self.0.entry(why).or_insert(0) += 1;
    }

    pub(super) fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(why, count)| (why.name().to_owned(), (*count).into())).collect())
    }

    pub(super) fn text(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(why, count)| format!("{count} {}", why.words())).collect();
        if parts.is_empty() { String::new() } else { format!("; kept: {}", parts.join(", ")) }
    }
}

/// What becomes of an effect.
pub(super) enum Verdict {
    Prune,
    /// It has its tombstone, and records before it.
    Unfinished,
    Kept(Kept),
}

/// What a row must meet.
pub(super) struct Rules {
    ledger: Arc<dyn Ledger>,
    contracts: Contracts,
    /// Parents by tenant and name: whether they were closed.
    parents: HashMap<(String, String), bool>,
    now: u64,
    replay_window: u64,
    before: Option<u64>,
    without_parent: bool,
}

impl Rules {
    pub(super) fn of(ledger: &Arc<dyn Ledger>, asked: &Prune, window: Duration, now: u64) -> anyhow::Result<Self> {
        let before = asked.before.as_deref().map(|text| {
            moment(text, now).ok_or_else(|| {
                usage(format!("--before {text:?}: expected an age (90d, 12h, 30m) or a date (2026-01-31, or RFC 3339)"))
            })
        });
        Ok(Self {
            contracts: Contracts::of(Arc::clone(ledger)),
            ledger: Arc::clone(ledger),
            parents: HashMap::new(),
            now,
            replay_window: millis(window),
            before: before.transpose()?,
            without_parent: asked.without_parent,
        })
    }

    pub(super) async fn verdict(&mut self, row: &Effect, records: &[Record]) -> anyhow::Result<Verdict> {
        if row.tombstone.is_some() && row.attempts.is_empty() && row.proposal.is_none() {
            let whole = is_unfinished(records);
            return Ok(if whole { Verdict::Unfinished } else { Verdict::Kept(Kept::Tombstone) });
        }
        Ok(match self.kept(row).await? {
            Some(why) => Verdict::Kept(why),
            None => Verdict::Prune,
        })
    }

    async fn kept(&mut self, row: &Effect) -> anyhow::Result<Option<Kept>> {
        if row.frozen || !STATES.contains(&row.state) {
            return Ok(Some(Kept::Frozen));
        }
        let age = self.now.saturating_sub(row.updated_at);
        if age <= self.replay_window {
            return Ok(Some(Kept::ReplayWindow));
        }
        if self.before.is_some_and(|before| row.updated_at >= before) {
            return Ok(Some(Kept::Younger));
        }
        if let Some(window) = self.contracts.window(row).await {
            let window = millis(window.saturating_add(CLOCK_ERROR));
            if row.attempts.iter().any(|attempt| self.now.saturating_sub(attempt.at) <= window) {
                return Ok(Some(Kept::DedupeWindow));
            }
        }
        let tenant = row.names().map(|names| names[0]).unwrap_or_default();
        match row.ties().and_then(|ties| ties.parent.as_deref()) {
            Some(parent) if self.is_closed(tenant, parent).await? => Ok(None),
            Some(_) => Ok(Some(Kept::ParentOpen)),
            None if self.without_parent => Ok(None),
            None => Ok(Some(Kept::NoParent)),
        }
    }

    async fn is_closed(&mut self, tenant: &str, parent: &str) -> anyhow::Result<bool> {
        let name = (tenant.to_owned(), parent.to_owned());
        if let Some(closed) = self.parents.get(&name) {
            return Ok(*closed);
        }
        let records = self.ledger.read(StreamId::parent(tenant, parent)).await.context("a parent cannot be read")?;
        let closed = records.iter().any(|record| matches!(record.event, Event::ParentClosed { .. }));
        self.parents.insert(name, closed);
        Ok(closed)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An age before now, or a date, in milliseconds of Unix time.
fn moment(text: &str, now: u64) -> Option<u64> {
    if let Some(ms) = age(text) {
        return Some(now.saturating_sub(ms));
    }
    let day = |date: jiff::civil::Date| jiff::tz::TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok();
    let at = text.parse::<jiff::Timestamp>().ok().or_else(|| text.parse().ok().and_then(day))?;
    u64::try_from(at.as_millisecond()).ok()
}

fn age(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_dates() {
        let now = 1_800_000_000_000;
        assert_eq!(moment("90d", now), Some(now - 90 * 86_400_000));
        assert_eq!(moment("30m", now), Some(now - 1_800_000));
        assert_eq!(moment("2026-01-31", now), Some(1_769_817_600_000));
        assert_eq!(moment("2026-01-31T00:00:01Z", now), Some(1_769_817_601_000));
        for wrong in ["", "90", "d", "90y", "yesterday", "2026-13-01", "-3d"] {
            assert_eq!(moment(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn what_stays_is_counted_by_why() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(), "");
        [Kept::NoParent, Kept::Frozen, Kept::NoParent].into_iter().for_each(|why| counts.add(why));
        assert_eq!(counts.text(), "; kept: 1 frozen, 2 without a parent");
        assert_eq!(counts.json(), serde_json::json!({ "frozen": 1, "no_parent": 2 }));
    }
}
