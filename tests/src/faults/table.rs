//! The results as a table for people and as lines for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::moments;
use super::row::{Row, Tally};
use super::trouble;

/// What every table begins with.
pub struct Title<'a> {
    /// The heading.
    pub heading: &'a str,
    /// The command that makes it.
    pub command: &'a str,
    /// What decides all chances.
    pub seed: u64,
}

const COLUMNS: &str = "effects | cut off | met | duplicates | lost | wrong | stuck | over-refusals | decisions";

/// Writes `table.md` and `rows.json` to that folder.
///
/// # Errors
/// The files cannot be written.
pub fn write(folder: &Path, title: &Title, rows: &[Row]) -> Result<()> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(place);
    fs::create_dir_all(folder)?;
    let failed = || format!("the table cannot be written to {}", folder.display());
    fs::write(folder.join("table.md"), markdown(title, &rows)).with_context(failed)?;
    fs::write(folder.join("rows.json"), json(&rows)?).with_context(failed)
}

/// Oncegate first, then modes and kill points in the order of the design.
fn place(row: &Row) -> (bool, String, usize, String, usize, u32, String) {
    let cell = &row.cell;
    let mode = trouble::ALL.iter().position(|trouble| trouble.name == cell.mode).unwrap_or(usize::MAX);
    let kill = moments::NAMES.iter().position(|name| *name == cell.kill_point).unwrap_or(usize::MAX);
    let (system, scenario) = (cell.system.clone(), cell.scenario.clone());
    (system != "oncegate", system, mode, scenario, kill, cell.callers, cell.values.clone())
}

/// One row a line, so that two tables can be compared line by line.
fn json(rows: &[Row]) -> Result<String> {
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text, $($arg)*); }};
}

fn markdown(title: &Title, rows: &[Row]) -> String {
    let mut text = String::new();
    put!(text, "# {}\n", title.heading);
    put!(text, "`{}`, seed {}.\n\n{LEGEND}", title.command, title.seed);
    put!(text, "## By system\n");
    sums(&mut text, "system", rows, |row| row.cell.system.clone());
    across(&mut text, "Duplicates by mode", rows, |tally| tally.duplicates);
    across(&mut text, "Stuck, or left to a person, by mode", rows, |tally| tally.stuck + tally.decisions);
    let ours: Vec<Row> = rows.iter().filter(|row| row.cell.system == "oncegate").cloned().collect();
    put!(text, "## Oncegate by mode\n");
    sums(&mut text, "mode", &ours, |row| row.cell.mode.clone());
    put!(text, "## Oncegate by kill point\n");
    sums(&mut text, "kill point", &ours, |row| row.cell.kill_point.clone());
    put!(text, "## Every cell\n");
    put!(text, "| system | ledger | tool | mode | kill point | callers | values | {COLUMNS} |");
    put!(text, "|---|---|---|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let cell = &row.cell;
        put!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.system,
            cell.ledger,
            cell.scenario,
            cell.mode,
            cell.kill_point,
            cell.callers,
            cell.values,
            counts(&row.tally)
        );
    }
    text
}

const LEGEND: &str = "\
`effects`: how many things were asked for, each by several calls in other words. `cut off`: processes that \
were killed, or stopped and woken. `met`: requests that met the mode. `duplicates`: second effects, by the \
provider's own count. `lost`: receipts that were told, or received and older than the sync bound, and are not in the \
ledger. `wrong`: successes told without that effect's own receipt. `stuck`: neither settled nor in a person's hands after \
the last reconcile and call. `over-refusals`: refused or sent to a person though nothing had happened or the answer was \
known. `decisions`: effects that a person has to decide about. A cell's chances come from the seed and the cell's name. \
Outages end before the last reconcile.\n\n\
Kill points are system calls of one process a call: SIGKILL before and after each; `at random` kills processes with \
hundreds of effects a call, three or more on one ledger, or one with many callers on one key. The plain tool and \
the Oncegate whose ledger is thrown away are controls: broken on purpose, so that a table in which they are right proves \
nothing.\n";

/// Systems beside each other; not where some have only a few of the modes.
fn across(text: &mut String, heading: &str, rows: &[Row], count: impl Fn(&Tally) -> u64) {
    let mut sums: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
    for row in rows {
        sums.entry((&row.cell.mode, &row.cell.system)).or_default().add(row.tally);
    }
    let mut systems: Vec<&str> = rows.iter().map(|row| row.cell.system.as_str()).collect();
    systems.dedup();
    let modes: Vec<&str> = trouble::ALL.iter().map(|trouble| trouble.name).collect();
    let met = modes.iter().filter(|mode| systems.iter().any(|system| sums.contains_key(&(*mode, *system))));
    let met: Vec<&&str> = met.collect();
    let whole = met.iter().all(|mode| systems.iter().all(|system| sums.contains_key(&(**mode, *system))));
    if systems.len() < 2 || !whole {
        return;
    }
    put!(text, "## {heading}\n\n| mode | {} |", systems.join(" | "));
    put!(text, "|---|{}", "---:|".repeat(systems.len()));
    for mode in met {
        let cells: Vec<String> = systems
            .iter()
            .filter_map(|system| sums.get(&(*mode, *system)))
            .map(|tally| format!("{} of {}", count(tally), tally.effects))
            .collect();
        put!(text, "| {mode} | {} |", cells.join(" | "));
    }
    put!(text, "");
}

fn sums(text: &mut String, name: &str, rows: &[Row], group: impl Fn(&Row) -> String) {
    let mut groups: Vec<(String, Tally)> = Vec::new();
    for row in rows {
        let key = group(row);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, tally)) => tally.add(row.tally),
            None => groups.push((key, row.tally)),
        }
    }
    put!(text, "| {name} | {COLUMNS} |");
    put!(text, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (key, tally) in groups {
        put!(text, "| {key} | {} |", counts(&tally));
    }
    put!(text, "");
}

fn counts(tally: &Tally) -> String {
    let Tally { effects, cut_off, met, duplicates, lost, wrong, stuck, over_refusals, decisions } = tally;
    format!("{effects} | {cut_off} | {met} | {duplicates} | {lost} | {wrong} | {stuck} | {over_refusals} | {decisions}")
}
