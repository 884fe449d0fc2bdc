//! `oncegate ledger erase`: the key of what effects belong to is destroyed, on record; identity stays.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use oncegate_ledger::private::{Erasable, Erasure, PrivateLedger};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Effects, EffectsError, Ledger, StreamId};
use serde_json::{Value, json};

use super::by::{Taken, said};
use super::{decide, find, list, state_words};
use crate::args::decide::Erase;
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};
use crate::print::{self, Tone, clean, hex};

const STAKES: &str =
    "nobody can ever read its text again; keys, states and receipts stay, and a repeat is still answered";

pub(super) async fn run(home: &Home, asked: &Erase) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let target = Target::of(&ledger, asked).await?;
    target.note_stops(&ledger).await?;
    let found = target.look(private(&ledger)?).await?;
    let version = version(&found);
    let expected = asked.expect_version.unwrap_or(version).to_string();
    let taken = Taken::of(&asked.by, &["erase", &target.name(), &expected])?;
    let mut erasing = Erasing { target, found, version, taken, said: Said::Shown };
    erasing.said = erasing.decide(&ledger, asked.expect_version).await?;
    print::out(&if home.json() { print::json(&erasing.json(), true)? } else { erasing.text() })?;
    Ok(erasing.exit())
}

fn private(ledger: &Arc<dyn Ledger>) -> anyhow::Result<&PrivateLedger> {
    ledger.private().context("this ledger has no keys")
}

/// What is to be erased.
enum Target {
    Parent { tenant: String, parent: String },
    Effect([u8; 32]),
}

impl Target {
    async fn of(ledger: &Arc<dyn Ledger>, asked: &Erase) -> anyhow::Result<Self> {
        if let Some(named) = &asked.parent {
            return match named.split_once('/') {
                Some((tenant, parent)) if !tenant.is_empty() && !parent.is_empty() => {
                    Ok(Self::Parent { tenant: tenant.to_owned(), parent: parent.to_owned() })
                }
                _ => Err(usage("--parent is the tenant, a slash, and the name of what effects belong to")),
            };
        }
        let named = said("KEY", asked.key.as_deref().unwrap_or_default(), "name an effect, or what it belongs to")?;
        let key = find::one(ledger, named).await?;
        let row = Effects::new(Arc::clone(ledger)).get(key).await?.context("the effect has no records")?;
        let tenant = row.names().map(|names| names[0].to_owned()).unwrap_or_default();
        match row.ties().and_then(|ties| ties.parent.clone()) {
            None => Ok(Self::Effect(key)),
            Some(parent) => Err(usage(format!(
                "this effect belongs to {parent}, and its text is under a key of that; erase all of it with --parent '{tenant}/{parent}'"
            ))),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Parent { tenant, parent } => format!("{tenant}/{parent}"),
            Self::Effect(key) => hex(key),
        }
    }

    /// The stream that has the decision.
    fn stream(&self) -> StreamId {
        match self {
            Self::Parent { tenant, parent } => StreamId::parent(tenant, parent),
            Self::Effect(key) => StreamId::effect(*key),
        }
    }

    async fn look(&self, private: &PrivateLedger) -> anyhow::Result<Erasable> {
        let found = match self {
            Self::Parent { tenant, parent } => private.erasable_of_parent(tenant, parent).await,
            Self::Effect(key) => private.erasable_of_effect(*key).await,
        };
        found.context("what is to be erased cannot be read")
    }

    /// A sender that has stopped and is not on record as such is no reason to wait.
    async fn note_stops(&self, ledger: &Arc<dyn Ledger>) -> anyhow::Result<()> {
        let effects = Effects::new(Arc::clone(ledger));
        for (key, _, _) in self.look(private(ledger)?).await?.open {
            if let Some(row) = effects.get(key).await? {
                decide::note_stops(&effects, key, row).await?;
            }
        }
        Ok(())
    }
}

/// Any change of what is erased raises it.
fn version(found: &Erasable) -> u64 {
    let rows = found.rows.iter().map(|(_, row)| row.version);
    let open = found.open.iter().map(|(_, row, _)| row.version);
    match rows.chain(open).fold(0, u64::saturating_add) {
        0 => found.version,
        sum => sum,
    }
}

struct Erasing {
    target: Target,
    found: Erasable,
    version: u64,
    taken: Taken,
    said: Said,
}

/// What came of it.
enum Said {
    /// Nothing was asked to be done.
    Shown,
    Erased,
    /// The same decision is on record.
    Before,
    /// There is nothing under a key.
    Nothing,
    Refused(String),
}

impl Erasing {
    async fn decide(&self, ledger: &Arc<dyn Ledger>, expected: Option<u64>) -> anyhow::Result<Said> {
        let records = ledger.read(self.target.stream()).await.context("earlier decisions cannot be read")?;
        if records.iter().any(|record| record.event.decision() == Some(&self.taken.id)) {
            return Ok(Said::Before);
        }
        let Some(expected) = expected else { return Ok(Said::Shown) };
        if let Some(why) = self.refusal(expected) {
            return Ok(Said::Refused(why));
        }
        if self.found.is_empty() {
            return Ok(if self.found.clear.is_empty() {
                Said::Nothing
            } else {
                Said::Refused(
                    "all of it was stored in clear, before encryption was on: no key destroys that".to_owned(),
                )
            });
        }
        let Taken { actor, reason, id } = self.taken.clone();
        let erasure = Erasure { actor, reason, decision: id, at: now_ms() };
        match private(ledger)?.erase(&self.found, &erasure).await {
            Ok(()) => Ok(Said::Erased),
            Err(EffectsError::Illegal(illegal)) => Ok(Said::Refused(illegal.why)),
            Err(error) if error.is_conflict() => {
                Ok(Said::Refused("something of it has changed at the same moment; look again".to_owned()))
            }
            Err(error) => Err(anyhow!(error)).context(
                "the erasure was interrupted, and may be on record; the same command again, or any that opens the ledger, completes it",
            ),
        }
    }

    fn refusal(&self, expected: u64) -> Option<String> {
        if let Some((key, row, why)) = self.found.open.first() {
            let more = match self.found.open.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            return Some(format!("{} is {}: {why}{more}", short(key), state_words(row)));
        }
        if self.found.tasks_open > 0 {
            return Some(format!("{} of its tasks have not ended", self.found.tasks_open));
        }
        (expected != self.version).then(|| {
            format!("it is at version {}, and the decision rests on {expected}; look at it again", self.version)
        })
    }

    fn exit(&self) -> Exit {
        match self.said {
            Said::Refused(_) => Exit::Refused,
            Said::Erased | Said::Before if !self.found.clear.is_empty() => Exit::Pending,
            Said::Erased | Said::Before | Said::Nothing | Said::Shown => Exit::Ok,
        }
    }

    fn counts(&self) -> String {
        let Erasable { rows, plans, tasks, .. } = &self.found;
        let mut counts = format!("{} effects", rows.len());
        for (count, what) in [(*plans, "plans"), (*tasks, "tasks")] {
            if count > 0 {
                counts.push_str(&format!(", {count} {what}"));
            }
        }
        counts
    }

    fn text(&self) -> String {
        let name = clean(&self.target.name());
        let mut text = match &self.said {
            Said::Shown => {
                let mut shown = format!("{name} at version {}: {}\n", self.version, self.counts());
                for (key, row) in &self.found.rows {
                    shown.push_str(&format!("  {} {}\n", short(key), state_words(row)));
                }
                for (key, row, why) in &self.found.open {
                    shown.push_str(&format!("  {} {}, in the way: {}\n", short(key), state_words(row), clean(why)));
                }
                shown + &format!("nothing was erased; --expect-version {} erases it\n", self.version)
            }
            Said::Erased => {
                format!("{}  {name}: {}\n{}", Tone::Good.paint("erased"), self.counts(), self.taken.lines())
            }
            Said::Before => format!("erased before: {name}\n{}", self.taken.lines()),
            Said::Nothing => format!("{name} has nothing under a key; there is nothing to erase\n"),
            Said::Refused(why) => format!("{} {}\n", Tone::Bad.paint("refused:"), clean(why)),
        };
        if matches!(self.said, Said::Shown | Said::Erased) {
            text.push_str(&format!("{}  {STAKES}\n", Tone::Warn.paint("at stake")));
        }
        for (key, row) in &self.found.clear {
            text.push_str(&format!(
                "{} {} {} was stored in clear, at least in part; `oncegate ledger prune` drops that\n",
                Tone::Warn.paint("not erased:"),
                short(key),
                state_words(row)
            ));
        }
        text
    }

    fn json(&self) -> Value {
        let keys = |rows: &[([u8; 32], Effect)]| rows.iter().map(|(key, _)| hex(key)).collect::<Vec<_>>();
        let open =
            self.found.open.iter().map(|(key, row, why)| json!({ "key": hex(key), "state": row.state, "why": why }));
        let mut value = self.taken.json("erase");
        value["target"] = self.target.name().into();
        value["version"] = self.version.into();
        value["recorded"] = matches!(self.said, Said::Erased | Said::Before).into();
        value["recorded_before"] = matches!(self.said, Said::Before).into();
        value["effects"] = json!(keys(&self.found.rows));
        value["plans"] = self.found.plans.into();
        value["tasks"] = self.found.tasks.into();
        value["open"] = open.collect();
        value["in_clear"] = json!(keys(&self.found.clear));
        value["at_stake"] = STAKES.into();
        if let Said::Refused(why) = &self.said {
            value["refused"] = "not-possible".into();
            value["why"] = why.as_str().into();
        }
        value
    }
}

fn short(key: &[u8; 32]) -> String {
    hex(&key[..list::SHORT_BYTES])
}
