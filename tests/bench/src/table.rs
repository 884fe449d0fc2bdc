//! The table for people, on a terminal and as Markdown.

use std::fmt::Write;

use comfy_table::{Cell, Color, ContentArrangement, Table};

use crate::machine::Machine;
use crate::row::Row;

const COLUMNS: [&str; 8] = ["what", "against", "median", "min – max", "goal", "met", "runs", "absolute, here"];

fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn cells(row: &Row) -> [String; 8] {
    let unit = if row.unit == "×" { "×".to_owned() } else { format!(" {}", row.unit) };
    let met = if row.goal == crate::row::Goal::None {
        "–"
    } else if row.met {
        "yes"
    } else {
        "no"
    };
    [
        row.name.clone(),
        row.against.clone(),
        format!("{}{unit}", figure(row.ratio)),
        format!("{} – {}", figure(row.min), figure(row.max)),
        row.goal.to_string(),
        met.to_owned(),
        row.runs.to_string(),
        row.detail.clone(),
    ]
}

/// As wide as the terminal; without colour in a pipe.
#[must_use]
pub fn terminal(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(COLUMNS);
    for row in rows {
        let mut cells: Vec<Cell> = cells(row).into_iter().map(Cell::new).collect();
        if let Some(met) = cells.get_mut(5)
            && row.goal != crate::row::Goal::None
        {
            *met = met.clone().fg(if row.met { Color::Green } else { Color::Red });
        }
        table.add_row(cells);
    }
    table
}

/// The page that is kept.
#[must_use]
pub fn markdown(machine: &Machine, rows: &[Row]) -> String {
    let mut page = String::from("# What Oncegate costs\n\n");
    let _ = writeln!(
        page,
        "Ratios of runs in which both sides were measured in turn; `cargo xtask bench --peers` makes this page anew. Absolute\n\
         figures hold for this machine only: {} cores ({}), {} GiB, {}, {}, load {} when it began.\n",
        machine.cores, machine.processor, machine.memory_gib, machine.kernel, machine.file_system, machine.load
    );
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    page.push_str(&line(&COLUMNS.map(str::to_owned)));
    page.push_str(&line(&COLUMNS.map(|_| "---".to_owned())));
    rows.iter().for_each(|row| page.push_str(&line(&cells(row))));
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Goal;
    use crate::sample::Spread;

    #[test]
    fn a_row_says_whether_its_goal_was_met() {
        let row = |goal| Row::new("p", "read tool", "bare engine", goal, Spread::of(&[1.234, 1.5, 1.1]));
        let page = markdown(&Machine::here(), &[row(Goal::AtMost(1.3)), row(Goal::AtLeast(2.0)), row(Goal::None)]);
        assert!(page.contains("| read tool | bare engine | 1.23× | 1.10 – 1.50 | ≤ 1.3 | yes | 3 |"), "{page}");
        assert!(page.contains("| ≥ 2 | no |") && page.contains("| – | – |"), "{page}");
    }
}
