//! `oncegate ledger reconcile`: finding out what is open, row by row.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Effects, Ledger};
use oncegate_sandbox::{DRAIN_MAX, LOOKS_MAX, Rounds, Sandbox};
use serde_json::json;
use tokio::task::JoinSet;

use super::progress::{Progress, REDRAWN_EVERY};
use super::{find, state_words, tone};
use crate::commands::call::stopped;
use crate::commands::settling::Contracts;
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, clean, hex};

/// Rows that are waited for at once: each may wait for its provider's index, and they wait together.
const AT_ONCE_MAX: usize = 32;
/// States in which somebody has to find out.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

pub(super) async fn run(home: &Home, digits: Option<&str>, confirm: bool) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let rows = rows(&ledger, digits, confirm).await?;
    let contracts = Contracts::of(Arc::clone(&ledger));
    let sandbox = home.sandbox_over(Ok(ledger))?;
    let left = all(home, &sandbox, contracts, rows, confirm).await;
    if tokio::time::timeout(DRAIN_MAX, sandbox.drain()).await.is_err() {
        eprintln!("something did not end in time; run the command again");
    }
    Ok(if left? == 0 { Exit::Ok } else { Exit::Pending })
}

/// Rounds of looks until an interrupt; each row that stays open is looked at ever more seldom.
pub(super) async fn again_and_again(home: &Home, every: Duration) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let sandbox = home.sandbox_over(Ok(ledger))?;
    let stopped = stopped();
    tokio::pin!(stopped);
    let mut rounds = Rounds::default();
    loop {
        let looked = tokio::select! {
            looked = sandbox.settle_open(&mut rounds, LOOKS_MAX) => looked.map_err(anyhow::Error::msg)?,
            () = &mut stopped => break,
        };
        for one in looked {
            let looked = Looked::new(one.key, &one.before, one.after.map(|row| (row, one.why)), false);
            print::out(&looked.line(home.json())?)?;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = &mut stopped => break,
        }
    }
    if tokio::time::timeout(DRAIN_MAX, sandbox.drain()).await.is_err() {
        eprintln!("something did not end in time; run the command again");
    }
    Ok(Exit::Ok)
}

/// The rows to look at, as they are now.
async fn rows(
    ledger: &Arc<dyn Ledger>,
    digits: Option<&str>,
    confirm: bool,
) -> anyhow::Result<Vec<([u8; 32], Effect)>> {
    let mut states = OPEN.to_vec();
    if confirm {
        states.push(StateTag::Done);
    }
    let keys = match digits {
        Some(digits) => vec![find::by_prefix(ledger, digits).await?],
        None => find::in_states(&**ledger, &states).await?,
    };
    let effects = Effects::new(Arc::clone(ledger));
    let mut rows = Vec::new();
    for key in keys {
        let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
        rows.extend(row.filter(|row| digits.is_some() || is_open(row, confirm)).map(|row| (key, row.without_bytes())));
    }
    Ok(rows)
}

fn is_open(row: &Effect, confirm: bool) -> bool {
    OPEN.contains(&row.state) || confirm && oncegate_sandbox::view(row).unconfirmed
}

/// Looks at every row; the number of those still open.
async fn all(
    home: &Home,
    sandbox: &Sandbox,
    mut contracts: Contracts,
    rows: Vec<([u8; 32], Effect)>,
    confirm: bool,
) -> anyhow::Result<usize> {
    let total = rows.len();
    let mut progress = Progress::of(total);
    let mut left = 0;
    let mut waiting = rows.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_ONCE_MAX
            && let Some((key, before)) = waiting.next()
        {
            progress.started(key, &before, contracts.settling(&before).await);
            let sandbox = sandbox.clone();
            running.spawn(async move { (key, before, sandbox.reconcile(key).await) });
        }
        let joined = tokio::select! {
            joined = running.join_next() => joined,
            () = tokio::time::sleep(REDRAWN_EVERY) => {
                progress.redraw();
                continue;
            }
        };
        let Some(joined) = joined else { break };
        let (key, before, after) = joined.context("a look was interrupted")?;
        let looked = Looked::new(key, &before, after, confirm);
        left += usize::from(looked.why.is_some());
        let line = looked.line(home.json())?;
        progress.ended(&key, || print::out(&line))?;
    }
    progress.bar.finish_and_clear();
    if !home.json() {
        print::out(&format!("{total} looked at, {left} still open\n"))?;
    }
    Ok(left)
}

/// What came of one row.
struct Looked {
    key: [u8; 32],
    label: String,
    before: StateTag,
    after: Option<Effect>,
    /// Why it is still open; none when it is not.
    why: Option<String>,
}

impl Looked {
    fn new(
        key: [u8; 32],
        before: &Effect,
        after: Result<(Option<Effect>, Option<String>), String>,
        confirm: bool,
    ) -> Self {
        let label = before.label().to_owned();
        let (after, why) = match after {
            Ok((Some(row), said)) => {
                let why = is_open(&row, confirm).then(|| why(&row, said));
                (Some(row), why)
            }
            Ok((None, _)) => (None, Some("its records are gone; run `oncegate ledger verify`".to_owned())),
            Err(error) => (None, Some(error)),
        };
        Self { key, label, before: before.state, after, why }
    }

    fn line(&self, as_json: bool) -> anyhow::Result<String> {
        let receipt = self.after.as_ref().and_then(|row| row.receipt.as_deref());
        if as_json {
            let state = self.after.as_ref().map(|row| row.state);
            return print::json(
                &json!({ "key": hex(&self.key), "label": self.label, "before": self.before, "after": state, "receipt": receipt, "open": self.why.is_some(), "why": self.why }),
                true,
            );
        }
        let after =
            self.after.as_ref().map_or_else(|| "not known".to_owned(), |row| tone(row).paint(&state_words(row)));
        let receipt = receipt.map(|receipt| format!(", receipt {}", clean(receipt))).unwrap_or_default();
        let why = self.why.as_ref().map(|why| format!(": {}", clean(why))).unwrap_or_default();
        let key = hex(&self.key[..super::list::SHORT_BYTES]);
        Ok(format!("{key} {}: {} → {after}{receipt}{why}\n", clean(&self.label), self.before))
    }
}

/// Why nobody can say more: what the look said, else what the row says.
fn why(row: &Effect, said: Option<String>) -> String {
    if row.frozen {
        return "frozen, because something contradicts it; only an operator goes on".to_owned();
    }
    said.unwrap_or_else(|| match row.state {
        StateTag::Dispatched | StateTag::Responded => {
            "its sender still runs, or is not known to have stopped".to_owned()
        }
        StateTag::Issued => "the provider accepted it and has not finished it".to_owned(),
        StateTag::Unknown => row.unknown_why.clone().unwrap_or_else(|| "nobody knows".to_owned()),
        _ => "its lookup has not found the receipt".to_owned(),
    })
}
