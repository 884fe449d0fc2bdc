//! `oncegate ledger list`: the effects, one line each.

use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_ledger::Effects;
use oncegate_ledger::state::{Effect, StateTag};

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
    let (keys, more) = find::in_states(&*ledger, &states, limit).await?;
    let effects = Effects::new(Arc::clone(&ledger));
    let mut rows = Vec::new();
    for key in keys {
        let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
        let Some(row) = row else {
            bail!("the ledger lists {} and has no records of it; run `oncegate ledger verify`", hex(&key))
        };
        if home.json() {
            print::out(&print::json(&summary(&key, &row), true)?)?;
        } else {
            rows.push(cells(&key, &row));
        }
    }
    if !home.json() {
        print::out(&print::table(&["key", "label", "state", "receipt", "attempts", "updated"], &rows))?;
    }
    if more {
        eprintln!("there are more than {limit}; --limit 0 lists all, --state only some");
    }
    Ok(Exit::Ok)
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
