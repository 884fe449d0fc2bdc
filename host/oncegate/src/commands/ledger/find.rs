//! Finding effects: by the first digits of a key, or by state.

use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_ledger::state::StateTag;
use oncegate_ledger::{Effects, Ledger, PAGE_MAX, StreamId, StreamKind};

use crate::exit::usage;
use crate::print::{clean, hex};

/// Keys named when a prefix fits several.
const NAMED_MAX: usize = 8;

/// The keys in these states, state by state, a page at a time.
pub(super) struct Pages<'a> {
    ledger: &'a dyn Ledger,
    states: std::slice::Iter<'a, StateTag>,
    at: Option<(StateTag, Option<StreamId>)>,
}

impl<'a> Pages<'a> {
    pub(super) fn of(ledger: &'a dyn Ledger, states: &'a [StateTag]) -> Self {
        let mut states = states.iter();
        let at = states.next().map(|state| (*state, None));
        Self { ledger, states, at }
    }

    /// The next page; none when all were given.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Vec<[u8; 32]>>> {
        while let Some((state, after)) = self.at {
            let listed = self.ledger.list(state, after, PAGE_MAX).await;
            let page = listed.with_context(|| format!("the effects that are {state} cannot be listed"))?;
            let Some(last) = page.last().copied() else {
                self.at = self.states.next().map(|state| (*state, None));
                continue;
            };
            self.at = Some((state, Some(last)));
            let effects = page.into_iter().filter(|id| id.kind == StreamKind::Effect);
            return Ok(Some(effects.map(|id| id.id).collect()));
        }
        Ok(None)
    }
}

/// All keys in these states, state by state.
pub(super) async fn in_states(ledger: &dyn Ledger, states: &[StateTag]) -> anyhow::Result<Vec<[u8; 32]>> {
    let mut pages = Pages::of(ledger, states);
    let mut keys = Vec::new();
    while let Some(page) = pages.next().await? {
        keys.extend(page);
    }
    Ok(keys)
}

/// The one effect that is named: by its key, the first digits of it, or its whole label.
pub(super) async fn one(ledger: &Arc<dyn Ledger>, named: &str) -> anyhow::Result<[u8; 32]> {
    if Range::of(named).is_some() || !named.contains(' ') {
        return by_prefix(ledger, named).await;
    }
    let effects = Effects::new(Arc::clone(ledger));
    let mut pages = Pages::of(&**ledger, &StateTag::ALL);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for key in page {
            let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
            found.extend(row.filter(|row| row.label() == named).map(|_| key));
        }
    }
    match found.as_slice() {
        [] => bail!("no effect has the label {:?}; `oncegate ledger list` shows those there are", clean(named)),
        [key] => Ok(*key),
        several => bail!("{}", ambiguous(ledger, &format!("have the label {named:?}"), several).await),
    }
}

/// The one key that begins with these digits.
pub(super) async fn by_prefix(ledger: &Arc<dyn Ledger>, digits: &str) -> anyhow::Result<[u8; 32]> {
    let Some(range) = Range::of(digits) else {
        return Err(usage(format!(
            "{:?} is not a key: give its first hexadecimal digits, as `oncegate ledger list` shows them",
            clean(digits)
        )));
    };
    let mut found = Vec::new();
    for state in StateTag::ALL {
        let page = ledger.list(state, range.before(), NAMED_MAX + 1).await.context("the keys cannot be listed")?;
        found.extend(page.into_iter().map(|id| id.id).filter(|key| range.holds(key)));
    }
    match found.as_slice() {
        [] => bail!("no effect has a key that begins with {digits}; `oncegate ledger list` shows those there are"),
        [key] => Ok(*key),
        several => bail!("{}", ambiguous(ledger, &format!("begin with {digits}"), several).await),
    }
}

async fn ambiguous(ledger: &Arc<dyn Ledger>, named: &str, keys: &[[u8; 32]]) -> String {
    let effects = Effects::new(Arc::clone(ledger));
    let mut text = format!("several effects {}; give more digits of one:", clean(named));
    for key in keys.iter().take(NAMED_MAX) {
        let label = match effects.get(*key).await {
            Ok(Some(row)) => format!("{} ({}, epoch {})", clean(row.label()), row.state, row.epoch),
            _ => "cannot be read".to_owned(),
        };
        text.push_str(&format!("\n  {} {label}", hex(key)));
    }
    if keys.len() > NAMED_MAX {
        text.push_str("\n  and more");
    }
    text
}

/// All keys that begin with some digits.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    low: [u8; 32],
    high: [u8; 32],
}

impl Range {
    fn of(digits: &str) -> Option<Self> {
        let nibbles: Option<Vec<u8>> =
            digits.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let nibbles = nibbles.filter(|nibbles| (1..=64).contains(&nibbles.len()))?;
        let filled = |rest: u8| {
            std::array::from_fn(|at| {
                let nibble = |at: usize| nibbles.get(at).copied().unwrap_or(rest);
                nibble(at * 2) << 4 | nibble(at * 2 + 1)
            })
        };
        Some(Self { low: filled(0), high: filled(0xf) })
    }

    fn holds(&self, key: &[u8; 32]) -> bool {
        (&self.low..=&self.high).contains(&key)
    }

    /// The last possible key before the range; none when it begins at the first.
    fn before(&self) -> Option<StreamId> {
        let mut key = self.low;
        for byte in key.iter_mut().rev() {
            let (less, borrowed) = byte.overflowing_sub(1);
            *byte = less;
            if !borrowed {
                return Some(StreamId::effect(key));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(front: &[u8], rest: u8) -> [u8; 32] {
        std::array::from_fn(|at| front.get(at).copied().unwrap_or(rest))
    }

    #[test]
    fn digits_are_a_range_of_keys() {
        let range = Range::of("3F9").unwrap();
        assert_eq!(range, Range { low: key(&[0x3f, 0x90], 0), high: key(&[0x3f, 0x9f], 0xff) });
        assert!(range.holds(&key(&[0x3f, 0x9a], 7)));
        assert!(!range.holds(&key(&[0x3f, 0xa0], 0)));
        assert_eq!(range.before(), Some(StreamId::effect(key(&[0x3f, 0x8f], 0xff))));
    }

    #[test]
    fn a_range_at_the_beginning_has_nothing_before_it() {
        assert_eq!(Range::of("0").unwrap().before(), None);
        let whole = Range::of(&"ab".repeat(32)).unwrap();
        assert_eq!(whole.low, whole.high);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for digits in ["", "xyz", "3f 9", &"a".repeat(65)] {
            assert!(Range::of(digits).is_none(), "{digits}");
        }
    }

    #[tokio::test]
    async fn nothing_is_found_in_an_empty_ledger() {
        let ledger = oncegate_ledger::init("memory:").await.unwrap();
        let error = by_prefix(&ledger, "ab").await.unwrap_err().to_string();
        assert!(error.contains("no effect has a key that begins with ab"), "{error}");
        assert!(by_prefix(&ledger, "no\x1b").await.is_err());
    }
}
