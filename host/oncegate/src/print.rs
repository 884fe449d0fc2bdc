//! How things are printed: JSON in one line for machines, indented for people; tables on a terminal
//! and plain columns in a pipe. Text from outside is cleaned here, so that it cannot steer a terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;

/// For a terminal that does not say how wide it is.
const COLUMNS: u16 = 80;

/// JSON with a line's end: one line when `compact`. Characters that steer a terminal are escaped.
pub(crate) fn json(value: &impl Serialize, compact: bool) -> anyhow::Result<String> {
    let mut text = if compact { serde_json::to_string(value)? } else { serde_json::to_string_pretty(value)? };
    // JSON itself escapes those below; outside of strings there are none.
    if text.chars().any(|c| c >= '\u{7f}' && steers(c)) {
        text = text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
            if c >= '\u{7f}' && steers(c) {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
            } else {
                safe.push(c);
            }
            safe
        });
    }
    text.push('\n');
    Ok(text)
}

/// Writes to stdout; a reader that has gone away has read enough.
pub(crate) fn out(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("the output cannot be written")
        }
        _ => Ok(()),
    }
}

/// Text from outside on one line: control characters, and those that hide or turn text around, are
/// replaced by a mark that can be seen.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Bytes from outside as lines of text: what is no text is written as `\xNN`, nothing is lost.
pub(crate) fn quoted(bytes: &[u8]) -> Vec<String> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| {
            // Writing into a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        });
    }
    text.lines().map(clean).collect()
}

fn steers(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || hidden
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How something is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Head,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// The text in this tone on a terminal, as it is elsewhere.
    pub(crate) fn paint(self, text: &str) -> String {
        if self == Self::Plain || !colours(&std::io::stdout()) {
            return text.to_owned();
        }
        let style = self.style();
        format!("{style}{text}{style:#}")
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Head => Style::new().bold(),
            Self::Good => colour(AnsiColor::Green),
            Self::Warn => colour(AnsiColor::Yellow),
            Self::Bad => colour(AnsiColor::Red),
        }
    }

    fn colour(self) -> Option<comfy_table::Color> {
        match self {
            Self::Plain | Self::Head => None,
            Self::Good => Some(comfy_table::Color::Green),
            Self::Warn => Some(comfy_table::Color::Yellow),
            Self::Bad => Some(comfy_table::Color::Red),
        }
    }
}

/// Whether colours may be written there.
pub(crate) fn colours(to: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !unwanted && std::env::var_os("TERM").is_none_or(|term| term != "dumb") && to.is_terminal()
}

/// One cell of a table.
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Cleans the text.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::toned(Tone::Plain, text)
    }

    /// Cleans the text, and says how it is meant.
    pub(crate) fn toned(tone: Tone, text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()), tone }
    }
}

/// A table for people; in a pipe the same columns, separated by tabs. Ends with a line's end.
pub(crate) fn table(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut text = if std::io::stdout().is_terminal() { drawn(header, rows) } else { tabbed(header, rows) };
    text.push('\n');
    text
}

fn tabbed(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut lines = vec![header.join("\t")];
    lines.extend(rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("\t")));
    lines.join("\n")
}

fn drawn(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let width = Table::new().width().filter(|width| *width > 0).unwrap_or(COLUMNS);
    drawn_within(width, header, rows)
}

/// The first column says which row it is, so it is never broken.
fn drawn_within(width: u16, header: &[&str], rows: &[Vec<Cell>]) -> String {
    let colours = colours(&std::io::stdout());
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED).set_width(width);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| {
            let drawn = comfy_table::Cell::new(&cell.text);
            match cell.tone.colour().filter(|_| colours) {
                Some(colour) => drawn.fg(colour),
                None => drawn,
            }
        }));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_steer_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{202e}d\u{9b}e"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e");
        assert_eq!(clean("Zürich, 東京"), "Zürich, 東京");
    }

    #[test]
    fn bytes_are_shown_whole() {
        assert_eq!(quoted(b"a\r\nb\xff\x1bc\n"), ["a", "b\\xff\u{fffd}c"]);
        assert!(quoted(b"").is_empty());
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({ "a": "x\u{9b}y\u{202e}z\u{e0041}é" });
        let text = json(&value, true).unwrap();
        assert_eq!(text, "{\"a\":\"x\\u009by\\u202ez\\udb40\\udc41é\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_key_stays_whole_in_a_narrow_terminal() {
        let rows = [vec![Cell::new("3f9a00112233"), Cell::new("refund R-1001 of a very long name indeed")]];
        let text = drawn_within(30, &["key", "label"], &rows);
        assert!(text.contains("3f9a00112233"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
    }

    #[test]
    fn a_pipe_gets_one_line_for_each_row() {
        let rows = [vec![Cell::new("a\tb"), Cell::toned(Tone::Bad, "c\n")]];
        assert_eq!(tabbed(&["x", "y"], &rows), "x\ty\na\u{fffd}b\tc\u{fffd}");
    }
}
