//! How things are printed: JSON in one line for machines, indented for people; tables on a terminal
//! and plain columns in a pipe.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

/// JSON with a line's end: one line when `compact`.
pub(crate) fn json(value: &impl Serialize, compact: bool) -> anyhow::Result<String> {
    let mut text = if compact { serde_json::to_string(value)? } else { serde_json::to_string_pretty(value)? };
    text.push('\n');
    Ok(text)
}

/// A table for people; in a pipe the same columns, separated by tabs.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    if !std::io::stdout().is_terminal() {
        let line = |cells: &mut dyn Iterator<Item = &str>| cells.collect::<Vec<_>>().join("\t");
        let mut text = line(&mut header.iter().copied());
        for row in rows {
            text.push('\n');
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        return text;
    }
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}
