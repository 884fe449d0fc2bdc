//! `oncegate doctor`: what would stop an effect, and what to do about it.

mod checks;
mod databases;
mod isolation;
mod ledger;
mod privacy;

use serde_json::{Value, json};

use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Cell, Tone, clean};

pub(crate) async fn run(home: &Home) -> anyhow::Result<Exit> {
    let mut found = ledger::check(home).await;
    found.extend(checks::policy(home).await);
    found.extend(checks::folders(home));
    found.push(checks::disk(home));
    found.push(checks::engine());
    found.extend(isolation::check());
    let stopped = found.iter().any(|finding| finding.status == Status::Fail);
    print::out(&if home.json() { as_json(&found, stopped)? } else { as_text(&found, stopped) })?;
    Ok(if stopped { Exit::Failed } else { Exit::Ok })
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// As it should be.
    Ok,
    /// Effects happen, and somebody should look.
    Warn,
    /// No effect can happen.
    Fail,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    const fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Warn => Tone::Warn,
            Self::Fail => Tone::Bad,
        }
    }
}

/// What was looked at, how it is, and what to do.
struct Finding {
    check: String,
    status: Status,
    found: String,
    advice: String,
}

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self { check: check.into(), status: Status::Ok, found: found.into(), advice: String::new() }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check: check.into(), status: Status::Warn, found: found.into(), advice: advice.into() }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check: check.into(), status: Status::Fail, found: found.into(), advice: advice.into() }
    }
}

fn as_text(found: &[Finding], stopped: bool) -> String {
    let row = |finding: &Finding| {
        let Finding { check, status, found, advice } = finding;
        vec![Cell::toned(status.tone(), status.word()), Cell::new(check), Cell::new(found), Cell::new(advice)]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let last = if stopped { "something stops effects" } else { "nothing here stops an effect" };
    format!("{}{}\n", print::table(&["", "check", "found", "what to do"], &rows), clean(last))
}

fn as_json(found: &[Finding], stopped: bool) -> anyhow::Result<String> {
    let all: Vec<Value> = found
        .iter()
        .map(|f| json!({ "check": f.check, "status": f.status.word(), "found": f.found, "advice": f.advice }))
        .collect();
    print::json(&json!({ "ok": !stopped, "checks": all }), true)
}

/// The error and its causes on one line.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ").replace('\n', "; ")
}
