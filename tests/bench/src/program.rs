//! The command line of a run: which parts, how thoroughly, and where the results go.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::part::{self, Part};
use crate::row::Row;
use crate::{plot, table};

/// What a run is asked for.
#[derive(Debug, clap::Parser)]
#[command(name = "bench", disable_version_flag = true)]
pub struct Program {
    /// Only these parts; their rows replace those of earlier runs
    #[arg(long)]
    pub only: Vec<String>,
    /// Also those parts that drive other systems
    #[arg(long)]
    pub peers: bool,
    /// Few calls, once: shows that each part works; its figures mean nothing
    #[arg(long)]
    pub smoke: bool,
    /// Where table.md, rows.json and the pictures go
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// Print the parts and end
    #[arg(long)]
    pub list: bool,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// See [`Program::smoke`].
    pub smoke: bool,
}

impl Effort {
    /// How often both sides are measured, in turn.
    #[must_use]
    pub fn runs(self, full: usize) -> usize {
        if self.smoke { 1 } else { full }
    }

    /// How many calls, or how much of anything, one measurement has.
    #[must_use]
    pub fn size(self, full: usize, smoke: usize) -> usize {
        if self.smoke { smoke } else { full }
    }
}

/// What is kept of runs.
#[derive(Serialize, Deserialize)]
struct Kept {
    machine: Machine,
    rows: Vec<Row>,
}

impl Program {
    /// Measures, keeps the results, prints them.
    ///
    /// # Errors
    /// A part cannot be measured, or the results cannot be written. A goal that is missed is a result.
    pub fn run(&self) -> Result<()> {
        let parts = self.parts()?;
        if self.list {
            parts.iter().for_each(|part| println!("{:<14} {}", part.name, part.about));
            return Ok(());
        }
        let machine = Machine::here();
        let mut rows = Vec::new();
        let bar = ProgressBar::new(parts.len() as u64);
        bar.set_style(ProgressStyle::with_template("{pos}/{len} {msg} {wide_bar} {elapsed} (eta {eta})")?);
        for part in &parts {
            bar.set_message(part.name);
            let measured = (part.measure)(Effort { smoke: self.smoke }, &self.out);
            rows.extend(measured.with_context(|| format!("the part {}", part.name))?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.keep(machine, rows)
    }

    fn parts(&self) -> Result<Vec<&'static Part>> {
        if let Some(name) = self.only.iter().find(|name| !part::ALL.iter().any(|part| part.name == *name)) {
            bail!("there is no part {name}; --list shows those there are");
        }
        let wanted = |part: &&Part| {
            if self.only.is_empty() {
                self.peers || !part.peers
            } else {
                self.only.iter().any(|name| name == part.name)
            }
        };
        Ok(part::ALL.iter().filter(wanted).collect())
    }

    fn keep(&self, machine: Machine, new: Vec<Row>) -> Result<()> {
        std::fs::create_dir_all(&self.out)?;
        let path = self.out.join("rows.json");
        let mut rows = earlier(&path)?;
        rows.retain(|row| !new.iter().any(|other| other.part == row.part));
        rows.extend(new);
        rows.sort_by_key(|row| part::ALL.iter().position(|part| part.name == row.part));
        let kept = Kept { machine, rows };
        std::fs::write(&path, serde_json::to_string_pretty(&kept)? + "\n")?;
        std::fs::write(self.out.join("table.md"), table::markdown(&kept.machine, &kept.rows))?;
        plot::goals(&kept.rows, &self.out.join("goals.svg"))?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&kept.rows)?);
        } else {
            println!("{}", table::terminal(&kept.rows));
        }
        Ok(())
    }
}

fn earlier(path: &Path) -> Result<Vec<Row>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)?;
    let kept: Kept = serde_json::from_str(&text).with_context(|| format!("{} of an earlier run", path.display()))?;
    Ok(kept.rows)
}
