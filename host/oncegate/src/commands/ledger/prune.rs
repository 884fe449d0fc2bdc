//! `oncegate ledger prune`: what is decided and old leaves a tombstone.
//!
//! Identity outlives data: a tombstone still answers with the receipt and still compares. Whatever the
//! clock says, pruning can therefore never lead to a second effect; it drops bytes and history.

mod hosts;
mod rules;

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Effects, Event, Ledger, Record, StreamId, Tasks, effects};
use serde_json::json;

use super::{find, history};
use crate::args::decide::Prune;
use crate::exit::Exit;
use crate::home::{Home, now_ms};
use crate::print::{self, clean, hex};
use rules::{Counts, Rules, STATES, Verdict};

/// Effects that get their tombstones in one commit.
const BATCH: usize = 128;

pub(super) async fn run(home: &Home, asked: &Prune) -> anyhow::Result<Exit> {
    let now = now_ms();
    let window = home.policy()?.retention.replay_window;
    let ledger = if asked.dry_run { home.ledger_for_reading().await? } else { home.ledger().await? };
    let rules = Rules::of(&ledger, asked, window, now)?;
    // Those that have stopped by now dispatch nothing that the rows read below do not show.
    let stopped = hosts::stopped(&ledger)?;
    let mut pruning = Pruning::of(home, ledger, rules, now, asked.dry_run);
    pruning.all().await?;
    if !asked.dry_run {
        pruning.tasks = drop_tasks(&pruning.ledger, now).await?;
        pruning.bytes = pruning.ledger.sweep().await.context("the space could not be given back")?;
        pruning.locks = hosts::tidy(&pruning.ledger, stopped).await?;
        if let Some(private) = pruning.ledger.private() {
            pruning.keys = private.tidy(now).await.context("unused keys could not be destroyed")?.unused;
        }
    }
    print::out(&pruning.told(home.json())?)?;
    Ok(Exit::Ok)
}

struct Pruning {
    ledger: Arc<dyn Ledger>,
    effects: Effects,
    rules: Rules,
    now: u64,
    dry_run: bool,
    json: bool,
    waiting: Vec<([u8; 32], Effect)>,
    counts: Counts,
    named: Vec<String>,
    pruned: u64,
    records: u64,
    bytes: u64,
    locks: usize,
    tasks: usize,
    keys: usize,
}

impl Pruning {
    fn of(home: &Home, ledger: Arc<dyn Ledger>, rules: Rules, now: u64, dry_run: bool) -> Self {
        let effects = Effects::new(Arc::clone(&ledger));
        Self {
            ledger,
            effects,
            rules,
            now,
            dry_run,
            json: home.json(),
            waiting: Vec::new(),
            counts: Counts::default(),
            named: Vec::new(),
            pruned: 0,
            records: 0,
            bytes: 0,
            locks: 0,
            tasks: 0,
            keys: 0,
        }
    }

    async fn all(&mut self) -> anyhow::Result<()> {
        let keys = find::in_states(&*self.ledger, &STATES).await?;
        let bar = bar(keys.len());
        for key in keys {
            self.one(key).await?;
            if self.waiting.len() >= BATCH {
                self.bury().await?;
            }
            bar.inc(1);
        }
        self.bury().await?;
        bar.finish_and_clear();
        Ok(())
    }

    async fn one(&mut self, key: [u8; 32]) -> anyhow::Result<()> {
        let (row, records) = self.read(key).await?;
        let Some(row) = row else { return Ok(()) };
        match self.rules.verdict(&row, &records).await? {
            Verdict::Kept(why) => self.counts.add(why),
            // A run that was interrupted left its records.
            Verdict::Unfinished if !self.dry_run => self.forget(vec![StreamId::effect(key)]).await?,
            Verdict::Unfinished => {}
            Verdict::Prune => {
                if self.dry_run {
                    self.name(&key, &row)?;
                }
                self.waiting.push((key, row.without_bytes()));
            }
        }
        Ok(())
    }

    async fn read(&self, key: [u8; 32]) -> anyhow::Result<(Option<Effect>, Vec<Record>)> {
        let unreadable = || format!("the effect {} cannot be read", hex(&key));
        let records = self.effects.history(key).await.with_context(unreadable)?;
        let row = effects::fold_records(&records).with_context(unreadable)?;
        Ok((row, records))
    }

    fn name(&mut self, key: &[u8; 32], row: &Effect) -> anyhow::Result<()> {
        if self.json {
            self.named.push(hex(key));
            return Ok(());
        }
        let since = history::ago(row.updated_at, self.now);
        let key = hex(key.get(..super::list::SHORT_BYTES).unwrap_or(key));
        print::out(&format!("{key} {}: {}, last changed {since}\n", clean(row.label()), row.state))
    }

    /// Tombstones in one commit; where a row has changed meanwhile, each is looked at again.
    async fn bury(&mut self) -> anyhow::Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        if rows.is_empty() || self.dry_run {
            self.pruned += rows.len() as u64;
            return Ok(());
        }
        match self.effects.bury(&rows, self.now).await {
            Ok(()) => {
                self.pruned += rows.len() as u64;
                self.forget(rows.into_iter().map(|(key, _)| StreamId::effect(key)).collect()).await
            }
            Err(error) if error.is_conflict() => self.bury_each(rows).await,
            Err(error) => Err(error).context("tombstones could not be recorded; run the command again"),
        }
    }

    async fn bury_each(&mut self, rows: Vec<([u8; 32], Effect)>) -> anyhow::Result<()> {
        for (key, _) in rows {
            let (row, records) = self.read(key).await?;
            let Some(row) = row else { continue };
            let Verdict::Prune = self.rules.verdict(&row, &records).await? else { continue };
            match self.effects.bury(&[(key, row)], self.now).await {
                Ok(()) => {
                    self.pruned += 1;
                    self.forget(vec![StreamId::effect(key)]).await?;
                }
                // It is in use: the next run sees.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error).context("a tombstone could not be recorded; run the command again"),
            }
        }
        Ok(())
    }

    async fn forget(&mut self, streams: Vec<StreamId>) -> anyhow::Result<()> {
        let removed = self.ledger.forget(streams).await;
        self.records += removed.context("records before tombstones could not be removed; run the command again")?;
        Ok(())
    }

    fn told(&self, as_json: bool) -> anyhow::Result<String> {
        if as_json {
            let mut value = json!({
                "dry_run": self.dry_run, "pruned": self.pruned, "records_removed": self.records,
                "bytes_freed": self.bytes, "host_locks_removed": self.locks,
                "tasks_dropped": self.tasks, "keys_destroyed": self.keys, "kept": self.counts.json(),
            });
            if self.dry_run {
                value["pruned"] = 0.into();
                value["would_prune"] = json!(self.named);
            }
            return print::json(&value, true);
        }
        let kept = self.counts.text();
        if self.dry_run {
            return Ok(format!("{} would be pruned{kept}\n", self.pruned));
        }
        Ok(format!(
            "{} pruned, {} records removed, {} of large bytes freed{kept}\n",
            self.pruned,
            self.records,
            HumanBytes(self.bytes)
        ))
    }
}

/// Tasks whose time is over: a server does that as it goes.
async fn drop_tasks(ledger: &Arc<dyn Ledger>, now: u64) -> anyhow::Result<usize> {
    let tasks = Tasks::new(Arc::clone(ledger));
    let mut all = 0;
    loop {
        match tasks
            .drop_old(now)
            .await
            .context("tasks whose time is over could not be dropped; run the command again")?
        {
            0 => return Ok(all),
            some => all += some,
        }
    }
}

/// Whether something lies before the latest tombstone.
fn is_unfinished(records: &[Record]) -> bool {
    records.iter().skip(1).any(|record| matches!(record.event, Event::Pruned(_)))
}

/// How far it is, and how long it will take; on a terminal only.
fn bar(rows: usize) -> ProgressBar {
    let shown = std::io::stderr().is_terminal() && rows > 0;
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(rows as u64), target);
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} effects, {elapsed} gone, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
