//! An operator's decision on one effect: taken once, on the version that was looked at, and on record.

mod approve;
pub(super) mod epochs;
mod senders;
mod verb;

use std::sync::Arc;

use anyhow::Context;
use oncegate_ledger::state::{self, Effect};
use oncegate_ledger::{Append, Effects, EffectsError, Expect, Ledger, Record, effects};
use serde_json::{Value, json};

use super::by::Taken;
use super::{find, history, state_words, summary, tone};
use crate::args::decide::OnRow;
use crate::exit::Exit;
use crate::home::{Home, now_ms};
use crate::print::{self, Tone, clean, hex};

pub(crate) use approve::Shown;
pub(super) use epochs::epochs;
pub(crate) use epochs::stored;
pub(super) use senders::{has_stopped, note_stops};
pub(super) use verb::Verb;

/// Decides, or says why not: exit 3 when the row is another than the operator saw or does not allow it.
pub(super) async fn run(home: &Home, asked: &OnRow, verb: Verb) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let key = find::one(&ledger, &asked.key).await?;
    let (named, version) = (hex(&key), asked.expect_version.to_string());
    let mut what = vec![verb.name(), &named, &version];
    what.extend(verb.values());
    let taken = Taken::of(&asked.by, &what)?;
    let deciding = Deciding { effects: Effects::new(ledger), key, expect: asked.expect_version, taken, verb };
    let said = deciding.decide(home).await?;
    let text = if home.json() { print::json(&said.json(&deciding), true)? } else { said.text(&deciding) };
    print::out(&text)?;
    Ok(said.exit())
}

struct Deciding {
    effects: Effects,
    key: [u8; 32],
    expect: u64,
    taken: Taken,
    verb: Verb,
}

/// What came of it.
enum Said {
    /// It is on record now.
    Recorded { row: Effect, stakes: Option<String>, request: Option<Value> },
    /// It was on record.
    Before { row: Effect },
    /// The row is at another version than the decision rests on.
    Stale { row: Effect, since: Vec<Record> },
    /// The row does not allow it.
    Refused { row: Effect, why: String },
}

impl Deciding {
    fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.effects.ledger
    }

    async fn read(&self) -> anyhow::Result<(Effect, Vec<Record>)> {
        let unreadable = || format!("the effect {} cannot be read", hex(&self.key));
        let records = self.effects.history(self.key).await.with_context(unreadable)?;
        let row = effects::fold_records(&records).with_context(unreadable)?.with_context(unreadable)?;
        Ok((row, records))
    }

    async fn decide(&self, home: &Home) -> anyhow::Result<Said> {
        let (row, records) = self.read().await?;
        if let Some(said) = self.elsewhere(&row, &records, self.expect) {
            return Ok(said);
        }
        let row = match self.verb {
            Verb::NoEffect | Verb::Done { .. } => senders::note_stops(&self.effects, self.key, row).await?,
            _ => row,
        };
        match self.refusal(&row).await? {
            Some(why) => Ok(Said::Refused { row, why }),
            None => self.record(home, row).await,
        }
    }

    /// Recorded before, or stale.
    fn elsewhere(&self, row: &Effect, records: &[Record], expected: u64) -> Option<Said> {
        let row = row.clone();
        if self.taken.is_on(&row) {
            return Some(Said::Before { row });
        }
        if row.version == expected {
            return None;
        }
        let since = records.iter().filter(|record| record.version > expected).cloned().collect();
        Some(Said::Stale { row, since })
    }

    /// Why the row, or another one, does not allow it.
    async fn refusal(&self, row: &Effect) -> anyhow::Result<Option<String>> {
        if let Verb::NoEffect = self.verb
            && let Some(why) = senders::may_still_send(row)
        {
            return Ok(Some(why));
        }
        if let Verb::Done { receipt } = &self.verb
            && let Some(other) = self.owner_of(row, receipt).await?.0
        {
            let label = self.effects.get(other).await.ok().flatten().map(|row| clean(row.label())).unwrap_or_default();
            return Ok(Some(format!("{receipt} is the receipt of {label} ({})", hex(&other[..6]))));
        }
        let event = self.verb.event(row, &self.taken, now_ms());
        let illegal = state::next(Some(row), &event).err();
        Ok(illegal.map(|illegal| format!("{}{}", illegal.why, self.verb.instead(row))))
    }

    /// Another effect that has the receipt, and the version of the record that says so.
    async fn owner_of(&self, row: &Effect, receipt: &str) -> anyhow::Result<(Option<[u8; 32]>, Append)> {
        let id = oncegate_ledger::StreamId::receipt(row.account(), receipt);
        let records = self.ledger().read(id).await.context("the receipts cannot be read")?;
        let guard = Append::guard(id, Expect::Version(records.last().map_or(0, |record| record.version)));
        let other = records.into_iter().find_map(|record| match record.event {
            oncegate_ledger::Event::ReceiptKnown { effect } if effect != self.key => Some(effect),
            _ => None,
        });
        Ok((other, guard))
    }

    async fn record(&self, home: &Home, row: Effect) -> anyhow::Result<Said> {
        let stakes = self.verb.stakes(&row);
        let mut request = None;
        if let Verb::Approve = self.verb {
            let shown = approve::Shown::of(&self.effects, self.key, &row).await?;
            if !home.json() {
                print::out(&shown.text())?;
            }
            request = Some(shown.json());
        }
        if let Some(stakes) = stakes.as_ref().filter(|_| !home.json()) {
            print::out(&format!("{}  {}\n", Tone::Warn.paint("at stake"), clean(stakes)))?;
        }
        let event = self.verb.event(&row, &self.taken, now_ms());
        let also = match &self.verb {
            Verb::Done { receipt } => vec![self.owner_of(&row, receipt).await?.1],
            _ => Vec::new(),
        };
        match self.effects.advance(self.key, Some(&row), event, also).await {
            Ok(row) => Ok(Said::Recorded { row, stakes, request }),
            Err(EffectsError::Illegal(illegal)) => Ok(Said::Refused { row, why: illegal.why }),
            Err(EffectsError::Ledger(error)) => {
                // Another was first, or nobody knows whether this was stored: the row says.
                let (now, records) = self.read().await?;
                match self.elsewhere(&now, &records, row.version) {
                    Some(Said::Before { row }) if !error_is_conflict(&error) => {
                        Ok(Said::Recorded { row, stakes, request })
                    }
                    Some(said) => Ok(said),
                    None => Err(error).context("the decision could not be recorded"),
                }
            }
        }
    }
}

fn error_is_conflict(error: &oncegate_ledger::LedgerError) -> bool {
    matches!(error, oncegate_ledger::LedgerError::Conflict { .. })
}

impl Said {
    fn exit(&self) -> Exit {
        match self {
            Self::Recorded { .. } | Self::Before { .. } => Exit::Ok,
            Self::Stale { .. } | Self::Refused { .. } => Exit::Refused,
        }
    }

    fn row(&self) -> &Effect {
        match self {
            Self::Recorded { row, .. } | Self::Before { row } | Self::Stale { row, .. } | Self::Refused { row, .. } => {
                row
            }
        }
    }

    fn text(&self, deciding: &Deciding) -> String {
        let row = self.row();
        let receipt = row.receipt.as_ref().map(|receipt| format!(", receipt {}", clean(receipt))).unwrap_or_default();
        let words = tone(row).paint(&state_words(row));
        let is = format!("{} is {words}{receipt}, version {}\n", clean(row.label()), row.version);
        match self {
            Self::Recorded { .. } => format!("{}  {is}{}", Tone::Good.paint("recorded"), deciding.taken.lines()),
            Self::Before { .. } => format!("recorded before: {is}{}", deciding.taken.lines()),
            Self::Refused { why, .. } => format!("{} {}\n{is}", Tone::Bad.paint("refused:"), clean(why)),
            Self::Stale { since, .. } => {
                let refused = Tone::Bad.paint("refused:");
                format!("{refused} {}\n{}{is}", stale(row, deciding.expect), history::timeline(since, now_ms()))
            }
        }
    }

    fn json(&self, deciding: &Deciding) -> Value {
        let mut value = deciding.taken.json(deciding.verb.name());
        value["effect"] = summary(&deciding.key, self.row());
        value["recorded"] = matches!(self, Self::Recorded { .. } | Self::Before { .. }).into();
        value["recorded_before"] = matches!(self, Self::Before { .. }).into();
        match self {
            Self::Recorded { stakes, request, .. } => {
                value["at_stake"] = json!(stakes);
                if let Some(request) = request {
                    value["approved"] = request.clone();
                }
            }
            Self::Before { .. } => {}
            Self::Stale { row, since } => {
                value["refused"] = "stale".into();
                value["why"] = stale(row, deciding.expect).into();
                value["since"] = since.iter().map(history::line_json).collect();
            }
            Self::Refused { why, .. } => {
                value["refused"] = "not-possible".into();
                value["why"] = why.as_str().into();
            }
        }
        value
    }
}

fn stale(row: &Effect, expected: u64) -> String {
    if row.version > expected {
        return format!("the row is at version {}, and the decision rests on {expected}; since then:", row.version);
    }
    format!("the row is at version {} and never was at {expected}", row.version)
}
