//! `oncegate ledger rename`: another label, URL or credential, and the same account.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_ledger::{Append, Effects, Event, Expect, Ledger, LedgerError, Record, StreamId};
use serde_json::{Value, json};

use super::by::Taken;
use super::{find, history};
use crate::args::decide::Rename;
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};
use crate::print::{self, Tone, clean, hex};

/// What an account's name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    account: String,
    endpoint: String,
    url: String,
    credential: Option<String>,
}

pub(super) async fn run(home: &Home, asked: &Rename) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let names = names(&ledger, asked).await?;
    let [tenant, owner, action] = names.each_ref().map(String::as_str);
    let id = StreamId::account(tenant, owner, action);
    let mut tries = 0;
    loop {
        let records = ledger.read(id).await.context("the account cannot be read")?;
        let (Some(bound), Some(last)) = (binding(&records), records.last()) else {
            bail!("no account is bound for the action {action} of {owner} for {tenant}; the first effect binds it");
        };
        let Some(expected) = asked.expect_version else {
            return Err(usage(format!(
                "--expect-version is missing; the binding is now\n{}",
                lines(&bound, last.version)
            )));
        };
        let renamed = changed(&bound, asked);
        let taken = taken(asked, &names, expected)?;
        let answer = Answer { home, taken: &taken, bound: &bound, version: last.version };
        if records.iter().any(|record| record.event.decision() == Some(&taken.id)) {
            return answer.recorded(true);
        }
        if last.version != expected {
            return answer.stale(expected, &records);
        }
        if renamed == bound {
            return Err(usage("nothing changes: say what is new with --account, --endpoint, --url or --credential"));
        }
        let append = Append::new(id, Expect::Version(expected), event(&renamed, &taken));
        match ledger.append(vec![append]).await {
            Ok(_) => return Answer { bound: &renamed, version: expected + 1, ..answer }.recorded(false),
            // The next look says whether it was this very decision.
            Err(LedgerError::Conflict { .. }) if tries == 0 => tries += 1,
            Err(error) => return Err(error).context("the decision could not be recorded"),
        }
    }
}

/// Tenant, owner and action.
async fn names(ledger: &Arc<dyn Ledger>, asked: &Rename) -> anyhow::Result<[String; 3]> {
    if let (Some(tenant), Some(owner), Some(action)) = (&asked.tenant, &asked.owner, &asked.action) {
        return Ok([tenant.clone(), owner.clone(), action.clone()]);
    }
    let named = asked.key.as_deref().unwrap_or_default();
    let key = find::one(ledger, named).await?;
    let row = Effects::new(Arc::clone(ledger)).get(key).await.context("the effect cannot be read")?;
    let row = row.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
    let [tenant, _, owner, action, ..] = row.names().context("the effect does not say whose it is")?;
    Ok([tenant.to_owned(), owner.to_owned(), action.to_owned()])
}

fn taken(asked: &Rename, names: &[String; 3], expected: u64) -> anyhow::Result<Taken> {
    let version = expected.to_string();
    let mut what: Vec<&str> = vec!["rename", &version];
    what.extend(names.iter().map(String::as_str));
    for (name, value) in [
        ("account", &asked.account),
        ("endpoint", &asked.endpoint),
        ("url", &asked.url),
        ("credential", &asked.credential),
    ] {
        what.extend(value.iter().flat_map(|value| [name, value.as_str()]));
    }
    if asked.no_credential {
        what.push("no-credential");
    }
    Taken::of(&asked.by, &what)
}

fn binding(records: &[Record]) -> Option<Binding> {
    records.iter().rev().find_map(|record| match &record.event {
        Event::AccountBound { account, endpoint, url, credential, .. }
        | Event::AccountRenamed { account, endpoint, url, credential, .. } => Some(Binding {
            account: account.clone(),
            endpoint: endpoint.clone(),
            url: url.clone(),
            credential: credential.clone(),
        }),
        _ => None,
    })
}

fn changed(bound: &Binding, asked: &Rename) -> Binding {
    let or = |new: &Option<String>, old: &String| new.clone().unwrap_or_else(|| old.clone());
    Binding {
        account: or(&asked.account, &bound.account),
        endpoint: or(&asked.endpoint, &bound.endpoint),
        url: or(&asked.url, &bound.url),
        credential: asked.credential.clone().or_else(|| bound.credential.clone().filter(|_| !asked.no_credential)),
    }
}

fn event(binding: &Binding, taken: &Taken) -> Event {
    let Binding { account, endpoint, url, credential } = binding.clone();
    Event::AccountRenamed {
        account,
        endpoint,
        url,
        credential,
        actor: taken.actor.clone(),
        reason: taken.reason.clone(),
        at: now_ms(),
        decision: Some(taken.id.clone()),
    }
}

fn lines(binding: &Binding, version: u64) -> String {
    let credential = binding.credential.as_deref().unwrap_or("none");
    let mut text = String::new();
    for (name, value) in [
        ("account", &*binding.account),
        ("endpoint", &binding.endpoint),
        ("url", &binding.url),
        ("credential", credential),
        ("version", &version.to_string()),
    ] {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{name:<10} {}", clean(value));
    }
    text
}

struct Answer<'a> {
    home: &'a Home,
    taken: &'a Taken,
    bound: &'a Binding,
    version: u64,
}

impl Answer<'_> {
    fn json(&self) -> Value {
        let mut value = self.taken.json("rename");
        let Binding { account, endpoint, url, credential } = self.bound;
        value["binding"] = json!({
            "account": account, "endpoint": endpoint, "url": url, "credential": credential, "version": self.version,
        });
        value
    }

    fn recorded(&self, before: bool) -> anyhow::Result<Exit> {
        if self.home.json() {
            let mut value = self.json();
            value["recorded"] = true.into();
            value["recorded_before"] = before.into();
            print::out(&print::json(&value, true)?)?;
        } else {
            let word = if before { "recorded before".to_owned() } else { Tone::Good.paint("recorded") };
            print::out(&format!("{word}\n{}{}", lines(self.bound, self.version), self.taken.lines()))?;
        }
        Ok(Exit::Ok)
    }

    fn stale(&self, expected: u64, records: &[Record]) -> anyhow::Result<Exit> {
        let since: Vec<Record> = records.iter().filter(|record| record.version > expected).cloned().collect();
        let why = format!("the binding is at version {}, and the decision rests on {expected}", self.version);
        if self.home.json() {
            let mut value = self.json();
            value["recorded"] = false.into();
            value["refused"] = "stale".into();
            value["why"] = why.into();
            value["since"] = since.iter().map(history::line_json).collect();
            print::out(&print::json(&value, true)?)?;
        } else {
            let since = history::timeline(&since, now_ms());
            let refused = Tone::Bad.paint("refused:");
            print::out(&format!("{refused} {why}; since then:\n{since}{}", lines(self.bound, self.version)))?;
        }
        Ok(Exit::Refused)
    }
}
