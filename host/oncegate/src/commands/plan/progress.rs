//! How far freezing or running a plan has come: a bar with the time left, on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on a terminal; nothing in a pipe, where lines are the progress.
pub(super) fn bar(length: usize, what: &'static str) -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length as u64), target);
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:30} {pos} of {len}, {elapsed} gone, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what);
    if shown {
        bar.enable_steady_tick(Duration::from_millis(120));
    }
    bar
}
