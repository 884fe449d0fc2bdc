//! `oncegate ledger trust`: accepting a ledger that lacks records, on record.

use std::path::PathBuf;

use anyhow::Context;
use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::{Event, Ledger, LedgerError, StreamId};
use serde_json::json;

use super::folder_of;
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};
use crate::print::{self, Tone, clean, hex};

const MEANS: &str = "effects that this ledger does not know may happen again";

pub(super) async fn run(home: &Home, reason: &str, actor: Option<&str>) -> anyhow::Result<Exit> {
    let reason = said("--reason", reason, "say why this ledger is the newest copy there is")?;
    let actor = said("--actor", actor.unwrap_or_default(), "say who decides this")?;
    let (open, url) = (home.ledger_url(), home.ledger_shown());
    let behind = match oncegate_ledger::open(&open).await {
        Err(LedgerError::Behind { why, .. }) => why,
        Ok(_) => return nothing(home, &url),
        Err(error) => return Err(error).with_context(|| format!("the ledger {url} cannot be accepted")),
    };
    let accepted =
        accept(&open, actor, reason).await.with_context(|| format!("the ledger {url} cannot be accepted"))?;
    if home.json() {
        let value = json!({
            "accepted": url, "id": hex(&accepted.id), "last_record": accepted.seq, "behind": behind,
            "actor": actor, "reason": reason, "means": MEANS,
        });
        print::out(&print::json(&value, true)?)?;
    } else {
        print::out(&described(&url, &behind, &accepted, actor, reason))?;
    }
    Ok(Exit::Ok)
}

fn said<'a>(option: &str, text: &'a str, otherwise: &str) -> anyhow::Result<&'a str> {
    let text = text.trim();
    if text.is_empty() { Err(usage(format!("{option} is empty: {otherwise}"))) } else { Ok(text) }
}

fn nothing(home: &Home, url: &str) -> anyhow::Result<Exit> {
    let text = if home.json() {
        print::json(&json!({ "accepted": null, "why": "it is not behind its head marker" }), true)?
    } else {
        format!("{} is not behind its head marker; there is nothing to accept\n", clean(url))
    };
    print::out(&text)?;
    Ok(Exit::Ok)
}

/// What was accepted: a ledger, and its last record at that moment.
struct Accepted {
    id: [u8; 16],
    seq: u64,
}

async fn accept(url: &str, actor: &str, reason: &str) -> anyhow::Result<Accepted> {
    let ledger: Box<dyn Ledger> = match url.strip_prefix("redb:").map(PathBuf::from) {
        Some(path) => {
            let (actor, reason) = (actor.to_owned(), reason.to_owned());
            // It commits to disk: never on an async thread.
            let trusting = tokio::task::spawn_blocking(move || RedbLedger::trust(&path, &actor, &reason, now_ms()));
            Box::new(trusting.await.context("it was interrupted")??)
        }
        None => {
            // The first that this machine has of it may be what is decided here.
            folder_of(url)?;
            Box::new(PostgresLedger::trust(url, actor, reason, now_ms()).await?)
        }
    };
    let records = ledger.read(StreamId::ledger()).await?;
    let trusted = records.into_iter().rev().find_map(|record| match record.event {
        Event::LedgerTrusted { seq, .. } => Some(seq),
        _ => None,
    });
    Ok(Accepted { id: ledger.identity().id, seq: trusted.context("nothing was recorded; try again")? })
}

fn described(url: &str, behind: &str, accepted: &Accepted, actor: &str, reason: &str) -> String {
    format!(
        "accepted {} as it is, id {}, with record {} as its last\nwas behind  {}\nby          {}: {}\n{}\n",
        clean(url),
        hex(&accepted.id),
        accepted.seq,
        clean(behind),
        clean(actor),
        clean(reason),
        Tone::Warn.paint(&format!("{MEANS}; this decision is recorded in it"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Usage;

    #[test]
    fn somebody_says_why() {
        for text in ["", "  "] {
            assert!(said("--reason", text, "why").unwrap_err().downcast_ref::<Usage>().is_some());
        }
        assert_eq!(said("--reason", " it is the newest ", "why").unwrap(), "it is the newest");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_ledger_without_its_marker_is_accepted_on_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.redb");
        let url = format!("redb:{}", path.display());
        drop(oncegate_ledger::init(&url).await.unwrap());
        std::fs::remove_file(folder.path().join("l.redb.head")).unwrap();
        assert!(matches!(oncegate_ledger::open(&url).await, Err(LedgerError::Behind { .. })));
        let accepted = accept(&url, "ada", "the disk died").await.unwrap();
        assert_eq!(accepted.seq, 1);
        assert!(oncegate_ledger::open(&url).await.is_ok());
        let told = described(&url, "x", &accepted, "ada", "the disk\ndied");
        assert!(told.contains("may happen again") && told.contains("ada: the disk\u{fffd}died"), "{told}");
    }
}
