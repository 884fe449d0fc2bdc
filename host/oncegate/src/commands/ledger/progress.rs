//! What `oncegate ledger reconcile` waits for, on a terminal.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oncegate_ledger::state::{Effect, StateTag};

use crate::commands::settling::Settling;
use crate::print::clean;

/// How often the seconds left are told.
pub(super) const REDRAWN_EVERY: Duration = Duration::from_millis(500);
/// Characters of a label that are shown.
const LABEL_CHARS: usize = 40;

/// The rows that are being looked at. Drawn on a terminal only; in a pipe the lines are the progress.
pub(super) struct Progress {
    pub(super) bar: ProgressBar,
    waiting: BTreeMap<[u8; 32], Waiting>,
}

struct Waiting {
    label: String,
    for_what: Wait,
}

/// What a row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Its lookup; if that does not find it, until then.
    AbsentAfter(Instant),
    Lookup,
    /// Its sender, or the answer that is stored.
    Sender,
}

impl Progress {
    pub(super) fn of(rows: usize) -> Self {
        let shown = std::io::stderr().is_terminal() && rows > 0;
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(rows as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} of {len}, {elapsed} gone; {wide_msg}") {
            bar.set_style(style);
        }
        if shown {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar, waiting: BTreeMap::new() }
    }

    pub(super) fn started(&mut self, key: [u8; 32], row: &Effect, settling: Settling) {
        let for_what = wait(row.state, settling, Instant::now());
        let label = clean(row.label()).chars().take(LABEL_CHARS).collect();
        self.waiting.insert(key, Waiting { label, for_what });
        self.redraw();
    }

    /// Prints what came of the row without the bar in the way.
    pub(super) fn ended(&mut self, key: &[u8; 32], print: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.waiting.remove(key);
        self.bar.suspend(print)?;
        self.bar.inc(1);
        self.redraw();
        Ok(())
    }

    pub(super) fn redraw(&self) {
        self.bar.set_message(told(&self.waiting, Instant::now()));
    }
}

fn wait(state: StateTag, settling: Settling, now: Instant) -> Wait {
    match (state, settling) {
        (StateTag::Dispatched | StateTag::Responded, _) => Wait::Sender,
        // The host counts from when it saw that the sender had stopped, which is now.
        (StateTag::Unknown, Settling::After(after)) => now.checked_add(after).map_or(Wait::Lookup, Wait::AbsentAfter),
        _ => Wait::Lookup,
    }
}

/// The row that waits longest, and how many others there are.
fn told(waiting: &BTreeMap<[u8; 32], Waiting>, now: Instant) -> String {
    let longest = waiting.values().max_by_key(|row| match row.for_what {
        Wait::AbsentAfter(until) => until.saturating_duration_since(now),
        Wait::Lookup | Wait::Sender => Duration::ZERO,
    });
    let Some(row) = longest else { return String::new() };
    let what = match row.for_what {
        Wait::AbsentAfter(until) if until > now => {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            format!("absent-after, {left}s left if it is not found")
        }
        Wait::AbsentAfter(_) | Wait::Lookup => "its lookup".to_owned(),
        Wait::Sender => "its sender or its stored answer".to_owned(),
    };
    let others = if waiting.len() > 1 { format!("; {} more", waiting.len() - 1) } else { String::new() };
    format!("{} waits for {what}{others}", row.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_told() {
        let now = Instant::now();
        let after = |seconds| wait(StateTag::Unknown, Settling::After(Duration::from_secs(seconds)), now);
        let row = |label: &str, for_what| Waiting { label: label.to_owned(), for_what };
        let mut waiting = BTreeMap::from([([1; 32], row("refund R-1", after(90)))]);
        assert_eq!(told(&waiting, now), "refund R-1 waits for absent-after, 91s left if it is not found");
        waiting.insert([2; 32], row("refund R-2", after(5)));
        waiting.insert([3; 32], row("refund R-3", wait(StateTag::Dispatched, Settling::NotKnown, now)));
        assert!(told(&waiting, now).starts_with("refund R-1") && told(&waiting, now).ends_with("; 2 more"));
        let later = now + Duration::from_secs(100);
        assert!(told(&waiting, later).contains("its lookup") || told(&waiting, later).contains("its sender"));
        assert_eq!(told(&BTreeMap::new(), now), "");
    }
}
