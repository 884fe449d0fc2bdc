//! `oncegate ledger migrate`: a ledger moves from its file into a database, with its whole history and its keys.

mod keys;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oncegate_ledger::postgres::{Move, beside, migrate, with_folder};
use oncegate_ledger::verify::{Checkpoint, checkpoint};
use oncegate_ledger::{Ledger, LedgerError, last_number, sealed_to};
use serde_json::json;

use super::by::said;
use super::folder_of;
use crate::exit::{Exit, usage};
use crate::home::{Home, is_database, now_ms, shown};
use crate::print::{self, Tone, clean};

/// How often the bar is drawn anew.
const REDRAWN_EVERY: Duration = Duration::from_millis(120);

/// What a person asked for.
pub(super) struct Asked<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) reason: &'a str,
    pub(super) actor: Option<&'a str>,
}

pub(super) async fn run(home: &Home, asked: Asked<'_>) -> anyhow::Result<Exit> {
    let (source, url) = ends(home, &asked)?;
    let by = Move {
        actor: said("--actor", asked.actor.unwrap_or_default(), "say who decides this")?.to_owned(),
        reason: said("--reason", asked.reason, "say why it moves; it is recorded")?.to_owned(),
        at: now_ms(),
    };
    let failed = || format!("{} cannot be moved to {}", clean(asked.from), clean(&shown(&url)));
    let moved = moved(asked.from, &source, &url, &by).await.with_context(failed)?;
    tell(home, asked.from, &shown(&url), &moved)?;
    Ok(Exit::Ok)
}

/// The file that moves, and the URL of what it becomes.
fn ends(home: &Home, asked: &Asked<'_>) -> anyhow::Result<(PathBuf, String)> {
    let Some(source) = asked.from.strip_prefix("redb:").filter(|path| !path.is_empty()) else {
        return Err(usage(format!("{:?} is not redb:PATH; only a ledger in a file moves", shown(asked.from))));
    };
    if !is_database(asked.to) {
        return Err(usage("a ledger moves to postgres://HOST/DATABASE"));
    }
    Ok((PathBuf::from(source), with_folder(asked.to, home.directory())))
}

/// What became of the move.
struct Moved {
    checkpoint: Checkpoint,
    keys: usize,
    /// An earlier command had come to its end but for the keys.
    before: bool,
}

async fn moved(from: &str, source: &Path, url: &str, by: &Move) -> anyhow::Result<Moved> {
    let Some(target) = beside(url) else { bail!("the URL names no data= folder") };
    folder_of(url)?;
    let source_ledger = source_of(from).await?;
    let bar = bar(last_number(&*source_ledger).await?);
    let mut progress = |records: u64| bar.set_position(records);
    let done = migrate(&*source_ledger, url, by, &mut progress).await;
    bar.finish_and_clear();
    let (checkpoint, before) = match done {
        Ok((ledger, checkpoint)) => {
            drop(ledger);
            (checkpoint, false)
        }
        Err(LedgerError::Exists { .. }) if sealed_to(&*source_ledger).await? == Some(shown(url)) => {
            let there = oncegate_ledger::open(url).await?;
            (checkpoint_of_source(&*source_ledger, &*there).await?, true)
        }
        Err(error) => return Err(error.into()),
    };
    // The source is sealed: no key comes or goes there any more.
    let (from, to) = (keys::beside(source), keys::beside(&target));
    let keys = tokio::task::spawn_blocking(move || keys::copy(&from, &to)).await??;
    Ok(Moved { checkpoint, keys, before })
}

/// What was moved before, if it is the same ledger that is there.
async fn checkpoint_of_source(source: &dyn Ledger, there: &dyn Ledger) -> anyhow::Result<Checkpoint> {
    if source.identity().id != there.identity().id {
        bail!("another ledger is there");
    }
    Ok(checkpoint(source).await?)
}

/// The source, also when an earlier attempt has sealed it.
async fn source_of(url: &str) -> Result<Arc<dyn Ledger>, LedgerError> {
    match oncegate_ledger::open(url).await {
        Err(LedgerError::Sealed { .. }) => oncegate_ledger::open_for_reading(url).await,
        opened => opened,
    }
}

/// Drawn on a terminal only.
fn bar(records: u64) -> ProgressBar {
    let seen = std::io::stderr().is_terminal();
    let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(records), target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_bar} {pos} of {len} records, {eta} left") {
        bar.set_style(style);
    }
    if seen {
        bar.enable_steady_tick(REDRAWN_EVERY);
    }
    bar
}

fn tell(home: &Home, from: &str, to: &str, moved: &Moved) -> anyhow::Result<()> {
    let Moved { checkpoint, keys, before } = moved;
    if home.json() {
        let value = json!({ "moved": from, "to": to, "checkpoint": checkpoint, "keys": keys, "before": before });
        return print::out(&print::json(&value, true)?);
    }
    let verb = if *before { "was moved before:" } else { "moved" };
    print::out(&format!(
        "{verb} {} to {}\nledger      {}\nstreams     {}, keys {keys}\ncheckpoint  {} at record {}, the same in both\n{}\n",
        clean(from),
        clean(to),
        checkpoint.ledger,
        checkpoint.streams,
        checkpoint.digest,
        checkpoint.seq,
        Tone::Warn.paint("the source is sealed: it refuses every effect from now on and says where it went")
    ))
}
