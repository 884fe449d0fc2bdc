//! Decisions on what is around effects: recorded once in a stream of their own.

use std::sync::Arc;

use anyhow::Context;
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, Record, StreamId};
use serde_json::json;

use super::by::Taken;
use super::history;
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Tone, clean};

/// Others that may decide at the same moment.
const TRIES: usize = 16;

/// Where a decision is recorded, and what is said about it.
pub(super) struct Stream<'a> {
    pub(super) ledger: &'a Arc<dyn Ledger>,
    pub(super) id: StreamId,
    pub(super) verb: &'static str,
    /// What is so from then on.
    pub(super) what: String,
    pub(super) stakes: Option<&'static str>,
    /// Any earlier decision in the stream says the same.
    pub(super) once: bool,
}

/// Appends the decision, unless it is there.
pub(super) async fn record(
    home: &Home,
    stream: &Stream<'_>,
    taken: &Taken,
    event: impl Fn(&Taken) -> Event,
) -> anyhow::Result<Exit> {
    if let Some(stakes) = stream.stakes.filter(|_| !home.json()) {
        print::out(&format!("{}  {stakes}\n", Tone::Warn.paint("at stake")))?;
    }
    let failed = || format!("the decision could not be recorded: {}", stream.verb);
    for _ in 0..TRIES {
        let records = stream.ledger.read(stream.id).await.with_context(failed)?;
        if let Some(earlier) = before(stream, &records, taken) {
            return say(home, stream, taken, Some(earlier));
        }
        let version = records.last().map_or(0, |record| record.version);
        let append = Append::new(stream.id, Expect::Version(version), event(taken));
        match stream.ledger.append(vec![append]).await {
            Ok(_) => return say(home, stream, taken, None),
            Err(LedgerError::Conflict { .. }) => {}
            Err(error) => {
                // Nobody knows whether it was stored: the stream says.
                let now = stream.ledger.read(stream.id).await.with_context(failed)?;
                if now.iter().any(|record| record.event.decision() == Some(&taken.id)) {
                    return say(home, stream, taken, None);
                }
                return Err(error).with_context(failed);
            }
        }
    }
    anyhow::bail!("too many decide at once; try again")
}

fn before<'r>(stream: &Stream<'_>, records: &'r [Record], taken: &Taken) -> Option<&'r Record> {
    let same = records.iter().find(|record| record.event.decision() == Some(&taken.id));
    same.or(records.last().filter(|_| stream.once))
}

fn say(home: &Home, stream: &Stream<'_>, taken: &Taken, earlier: Option<&Record>) -> anyhow::Result<Exit> {
    if home.json() {
        let mut value = taken.json(stream.verb);
        value["recorded"] = true.into();
        value["recorded_before"] = earlier.is_some().into();
        value["what"] = stream.what.as_str().into();
        value["at_stake"] = json!(stream.stakes);
        value["earlier"] = json!(earlier.map(history::line_json));
        print::out(&print::json(&value, true)?)?;
        return Ok(Exit::Ok);
    }
    let what = clean(&stream.what);
    let text = match earlier {
        Some(earlier) => format!("recorded before: {what}\nby        {}\n", history::detail(&earlier.event)),
        None => format!("{}  {what}\n{}", Tone::Good.paint("recorded"), taken.lines()),
    };
    print::out(&text)?;
    Ok(Exit::Ok)
}
