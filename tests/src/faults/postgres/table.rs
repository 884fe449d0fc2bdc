//! The campaign's results as a table for people and as lines for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::row::{Row, Tally};
use super::fault::Fault;

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text, $($arg)*); }};
}

const LEGEND: &str = "\
Each cell: a PostgreSQL 15 of its own, so many processes of the built program (`oncegate serve`), each with a data \
directory and a head marker of its own, and agents that ask for the same refunds of any host, again and again, in other \
words and under new ids, while something goes wrong; the provider has no idempotency. Then everything is whole, open rows \
are reconciled, everybody asks once more of another host, all hosts must show the same rows, and `ledger verify` must \
pass.\n\n\
`effects`: how many things were asked for. `hosts hit`: processes of hosts killed, or stopped and continued. `other \
faults`: kills of the database, failovers, spoiled connections, partitions, cancelled waits. `duplicates`: second effects, \
by the provider's own count. `lost`: receipts that were told and are not in the ledger. `wrong`: successes told without \
that effect's own receipt. `stuck`: neither settled nor in a person's hands after the last call. `refused`: not told as \
done at the end, though nothing had happened or the answer was known. `decisions`: effects that a person has to decide \
about. The last rows are controls, broken on purpose: a table in which they are right proves nothing.\n";

const COLUMNS: &str = "effects | hosts hit | other faults | duplicates | lost | wrong | stuck | refused | decisions";

/// Writes `table.md` and `rows.json` to that folder.
///
/// # Errors
/// The files cannot be written.
pub fn write(folder: &Path, command: &str, seed: u64, rows: &[Row]) -> Result<()> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(place);
    fs::create_dir_all(folder)?;
    let failed = || format!("the table cannot be written to {}", folder.display());
    fs::write(folder.join("table.md"), markdown(command, seed, &rows)).with_context(failed)?;
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    fs::write(folder.join("rows.json"), format!("[\n{}\n]\n", lines.join(",\n"))).with_context(failed)
}

fn place(row: &Row) -> (bool, usize, u32) {
    let fault = Fault::ALL.iter().position(|fault| fault.name() == row.cell.mode).unwrap_or(usize::MAX);
    (row.cell.system != "oncegate", fault, row.cell.callers)
}

fn markdown(command: &str, seed: u64, rows: &[Row]) -> String {
    let mut text = String::new();
    put!(text, "# The fault campaign on PostgreSQL\n\n`{command}`, seed {seed}.\n\n{LEGEND}");
    put!(text, "| system | hosts | fault | {COLUMNS} |");
    put!(text, "|---|---:|---|{}", "---:|".repeat(9));
    let mut total = Tally::default();
    for row in rows {
        let Row { cell, tally } = row;
        if cell.system == "oncegate" {
            total.add(*tally);
        }
        put!(text, "| {} | {} | {} | {} |", cell.system, cell.callers, cell.mode, counts(tally));
    }
    put!(text, "| **oncegate** | | all | {} |", counts(&total));
    text
}

fn counts(tally: &Tally) -> String {
    let Tally { effects, cut_off, met, duplicates, lost, wrong, stuck, over_refusals, decisions } = tally;
    format!("{effects} | {cut_off} | {met} | {duplicates} | {lost} | {wrong} | {stuck} | {over_refusals} | {decisions}")
}
