//! `oncegate ledger list`: the effects, one line each, the newest first.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Effects, Ledger};
use oncegate_sandbox::host::FROZEN_MANY;

use super::{find, state_words, summary, tone};
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Cell, hex};

/// Bytes of a key that are shown: enough to tell a million effects apart.
pub(super) const SHORT_BYTES: usize = 6;

pub(super) async fn run(home: &Home, state: Option<StateTag>, limit: usize) -> anyhow::Result<Exit> {
    let ledger = home.ledger_for_reading().await?;
    let states = state.map_or_else(|| StateTag::ALL.to_vec(), |state| vec![state]);
    let limit = if limit == 0 { usize::MAX } else { limit };
    let newest = newest(&ledger, &states, limit).await?;
    if home.json() {
        for (key, row) in newest.rows() {
            print::out(&print::json(&summary(key, row), true)?)?;
        }
    } else {
        let rows: Vec<_> = newest.rows().map(|(key, row)| cells(key, row)).collect();
        print::out(&print::table(&["key", "label", "state", "receipt", "attempts", "updated"], &rows))?;
    }
    for (account, count) in frozen_many(newest.rows().map(|(_, row)| row)) {
        let account = print::clean(&account);
        eprintln!("{count} keys are frozen at the account {account}: is what its contract states true?");
    }
    if newest.more {
        eprintln!("there are more than {limit}; --limit 0 lists all, --state only some");
    }
    Ok(Exit::Ok)
}

/// Accounts at which many of the rows are frozen.
fn frozen_many<'a>(rows: impl Iterator<Item = &'a Effect>) -> BTreeMap<String, usize> {
    let mut frozen: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.filter(|row| row.frozen) {
        *frozen.entry(row.account().to_owned()).or_default() += 1;
    }
    frozen.retain(|_, count| *count >= FROZEN_MANY);
    frozen
}

/// Reads every effect in these states a page of keys at a time, and keeps the newest.
async fn newest(ledger: &Arc<dyn Ledger>, states: &[StateTag], limit: usize) -> anyhow::Result<Newest<Effect>> {
    let effects = Effects::new(Arc::clone(ledger));
    let mut newest = Newest::of(limit);
    let mut pages = find::Pages::of(&**ledger, states);
    while let Some(page) = pages.next().await? {
        for key in page {
            let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
            let gone =
                || format!("the ledger lists {} and has no records of it; run `oncegate ledger verify`", hex(&key));
            let row = row.with_context(gone)?.without_bytes();
            newest.add(row.updated_at, key, row);
        }
    }
    Ok(newest)
}

/// The rows that were updated last, at most so many; the key decides between equal times.
struct Newest<R> {
    limit: usize,
    rows: BTreeMap<(u64, [u8; 32]), R>,
    more: bool,
}

impl<R> Newest<R> {
    fn of(limit: usize) -> Self {
        Self { limit, rows: BTreeMap::new(), more: false }
    }

    fn add(&mut self, updated_at: u64, key: [u8; 32], row: R) {
        self.rows.insert((updated_at, key), row);
        if self.rows.len() > self.limit {
            self.rows.pop_first();
            self.more = true;
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&[u8; 32], &R)> {
        self.rows.iter().rev().map(|((_, key), row)| (key, row))
    }
}

fn cells(key: &[u8; 32], row: &Effect) -> Vec<Cell> {
    vec![
        Cell::new(hex(&key[..SHORT_BYTES])),
        Cell::new(row.label()),
        Cell::toned(tone(row), state_words(row)),
        Cell::new(row.receipt.as_deref().unwrap_or("-")),
        Cell::new(row.attempts.len().to_string()),
        Cell::new(oncegate_sandbox::rfc3339(row.updated_at)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_come_first() {
        let mut newest = Newest::of(2);
        for (id, at) in [(1, 30), (2, 10), (3, 20), (4, 30)] {
            newest.add(at, [id; 32], at);
        }
        assert!(newest.more);
        assert_eq!(newest.rows().map(|(key, at)| (key[0], *at)).collect::<Vec<_>>(), [(4, 30), (1, 30)]);
    }
}
