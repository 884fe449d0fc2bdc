//! `oncegate ledger`: making, looking at and looking after the ledger.

mod account;
mod by;
mod close_parent;
mod decide;
mod erase;
mod fence;
mod find;
mod history;
mod hosts;
mod list;
mod migrate;
mod progress;
mod prune;
mod reconcile;
mod show;
mod stream_decision;
mod trust;
mod verify;

use std::io::BufWriter;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use oncegate_ledger::export::{ExportError, export};
use oncegate_ledger::postgres::beside;
use oncegate_ledger::state::{Effect, StateTag};
use serde_json::{Value, json};

use crate::args::decide::Found;
use crate::args::{Ledger, LedgerCommand};
use crate::exit::{Exit, usage};
use crate::home::Home;
use crate::print::{self, Tone, clean, hex};
use decide::Verb;
pub(crate) use decide::{Shown, stored};

pub(crate) async fn run(home: &Home, args: Ledger) -> anyhow::Result<Exit> {
    match args.command {
        LedgerCommand::Init => init(home).await,
        LedgerCommand::List { state, limit } => list::run(home, state, limit).await,
        LedgerCommand::Show { key, raw } => show::run(home, &key, raw.as_deref()).await,
        LedgerCommand::Resolve(asked) => decide::run(home, &asked.row, resolve(asked.found, asked.receipt)?).await,
        LedgerCommand::Revoke(asked) => decide::run(home, &asked, Verb::Revoke).await,
        LedgerCommand::Supersede(asked) => decide::run(home, &asked.row, Verb::Supersede { whom: asked.whom }).await,
        LedgerCommand::Approve(asked) => decide::run(home, &asked, Verb::Approve).await,
        LedgerCommand::Deny(asked) => decide::run(home, &asked, Verb::Deny).await,
        LedgerCommand::Fence(asked) => fence::run(home, &asked).await,
        LedgerCommand::Rename(asked) => account::run(home, &asked).await,
        LedgerCommand::CloseParent(asked) => close_parent::run(home, &asked).await,
        LedgerCommand::Erase(asked) => erase::run(home, &asked).await,
        LedgerCommand::Prune(asked) => prune::run(home, &asked).await,
        LedgerCommand::Reconcile { every: Some(every), .. } => reconcile::again_and_again(home, every).await,
        LedgerCommand::Reconcile { key, confirm, .. } => reconcile::run(home, key.as_deref(), confirm).await,
        LedgerCommand::Trust { reason, actor } => trust::run(home, &reason, actor.as_deref()).await,
        LedgerCommand::Verify { export: None } => verify::run(home).await,
        LedgerCommand::Verify { export: Some(file) } => verify::run_on_export(home, &file),
        LedgerCommand::Export => export_all(home).await,
        LedgerCommand::Migrate { from, to, reason, actor } => {
            let asked = migrate::Asked { from: &from, to: &to, reason: &reason, actor: actor.as_deref() };
            migrate::run(home, asked).await
        }
        LedgerCommand::Hosts { all } => hosts::run(home, all).await,
    }
}

fn resolve(found: Found, receipt: Option<String>) -> anyhow::Result<Verb> {
    match (found, receipt) {
        (Found::Done, Some(receipt)) if !receipt.trim().is_empty() => Ok(Verb::Done { receipt }),
        (Found::Done, _) => Err(usage("--receipt is empty: done needs the provider's identifier")),
        (_, Some(_)) => Err(usage("--receipt goes with --as done only")),
        (Found::NoEffect, None) => Ok(Verb::NoEffect),
        (Found::FailedLater, None) => Ok(Verb::FailedLater),
    }
}

async fn init(home: &Home) -> anyhow::Result<Exit> {
    let (url, shown) = (home.ledger_url(), home.ledger_shown());
    let failed = || format!("the ledger {shown} cannot be created");
    folder_of(&url).with_context(failed)?;
    let identity = oncegate_ledger::init(&url).await.with_context(failed)?.identity();
    if home.json() {
        let made = json!({ "created": identity.url, "id": hex(&identity.id), "format": identity.format });
        print::out(&print::json(&made, true)?)?;
    } else {
        print::out(&format!("created {}\n", clean(&identity.url)))?;
    }
    Ok(Exit::Ok)
}

/// Makes the folder that the ledger's file, or this machine's part of it, is in.
fn folder_of(url: &str) -> anyhow::Result<()> {
    let path = url.strip_prefix("redb:").map(PathBuf::from).or_else(|| beside(url));
    path.as_deref().and_then(Path::parent).map_or(Ok(()), private_folder)
}

/// Makes the folder and its parents, for this user alone; what exists stays as it is.
fn private_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("the folder {} cannot be made", folder.display()))
}

async fn export_all(home: &Home) -> anyhow::Result<Exit> {
    let ledger = home.ledger_as_stored().await?;
    let mut to = BufWriter::new(std::io::stdout());
    match export(&*ledger, 1, &mut to).await {
        // Whoever read the lines has read enough.
        Err(ExportError::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(ExportError::Ledger(error)) => Err(error).context("the export stopped"),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Exit::Ok),
    }
}

/// The row as one JSON object, the same in every command.
fn summary(key: &[u8; 32], row: &Effect) -> Value {
    let name = |at: usize| row.names().and_then(|names| names.get(at).copied()).filter(|name| !name.is_empty());
    json!({
        "key": hex(key),
        "label": row.label(),
        "state": row.state,
        "receipt": row.receipt,
        "reason": row.reason,
        "unknown_why": row.unknown_why,
        "attempts": row.attempts.len(),
        "updated": oncegate_sandbox::rfc3339(row.updated_at),
        "since": oncegate_sandbox::rfc3339(row.state_since),
        "tool": name(4),
        "operation": name(5),
        "tenant": name(0),
        "account": name(1),
        "generation": row.generation,
        "epoch": row.epoch,
        "frozen": row.frozen,
        "pruned": row.tombstone.is_some() && row.attempts.is_empty() && row.proposal.is_none(),
        "erased": row.erasures > 0,
        "revoke_wished": row.revoke_wished,
        "diverged": row.diverged,
        "unconfirmed": oncegate_sandbox::view(row).unconfirmed,
        "version": row.version,
    })
}

/// The state, and what a person has to know with it.
fn state_words(row: &Effect) -> String {
    let mut words = row.state.as_str().to_owned();
    if row.frozen {
        words.push_str(", frozen");
    } else if row.diverged {
        words.push_str(", diverged");
    }
    if row.revoke_wished && row.state != StateTag::Revoked {
        words.push_str(", to be revoked");
    }
    if oncegate_sandbox::view(row).unconfirmed {
        words.push_str(", unconfirmed");
    }
    words
}

fn tone(row: &Effect) -> Tone {
    match row.state {
        _ if row.frozen => Tone::Bad,
        StateTag::Done => Tone::Good,
        StateTag::Unknown | StateTag::Stranded => Tone::Bad,
        StateTag::Dispatched | StateTag::Responded | StateTag::Issued | StateTag::AwaitingApproval => Tone::Warn,
        _ => Tone::Plain,
    }
}
