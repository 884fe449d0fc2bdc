//! Whether the ledger accepts effects, what is open in it, and whether the clock can be believed.

use oncegate_ledger::state::StateTag;
use oncegate_ledger::{Ledger, LedgerError, Role};

use super::Finding;
use crate::home::{Home, now_ms};
use crate::print::hex;

/// The program is younger than this: an earlier clock is wrong.
const NOT_BEFORE_MS: u64 = 1_767_225_600_000;
/// How far two clocks, or one that is being adjusted, may be apart.
const CLOCK_SLACK_MS: u64 = 5_000;
/// Newest records whose stamps are looked at.
const NEWEST: u64 = 64;
/// Open rows that are counted; more are "so many or more".
const COUNTED_MAX: usize = 1_000;
/// States that somebody has to find out.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

pub(super) async fn check(home: &Home) -> Vec<Finding> {
    match oncegate_ledger::open(&home.ledger_url()).await {
        Ok(ledger) => {
            let mut found = vec![opened(&*ledger)];
            found.extend(open_rows(&*ledger).await);
            found.push(clock(newest_stamp(&*ledger).await, now_ms()));
            found
        }
        Err(error) => vec![refused(&error), clock(Ok(0), now_ms())],
    }
}

fn opened(ledger: &dyn Ledger) -> Finding {
    let identity = ledger.identity();
    let role = match identity.role {
        Role::Owner => "no other process has it",
        Role::Client => "another process owns it and takes this one's appends",
        Role::Reader => "opened for reading only",
    };
    Finding::ok(
        "ledger",
        format!(
            "{}, id {}, format {}; not behind its marker; {role}",
            identity.url,
            hex(&identity.id),
            identity.format
        ),
    )
}

fn refused(error: &LedgerError) -> Finding {
    let advice = match error {
        LedgerError::Missing { .. } => "oncegate ledger init",
        LedgerError::Behind { .. } => "find the newest copy; what it lacks could happen again",
        LedgerError::Damaged { .. } | LedgerError::Empty { .. } => {
            "oncegate ledger verify, and restore the newest copy"
        }
        LedgerError::Newer { .. } => "use the version of oncegate that wrote it",
        LedgerError::Full { .. } => "free space",
        _ => "see what is said; until then every effect is refused",
    };
    Finding::fail("ledger", error.to_string(), advice)
}

async fn open_rows(ledger: &dyn Ledger) -> Option<Finding> {
    let mut open = Vec::new();
    for state in OPEN {
        match ledger.list(state, None, COUNTED_MAX).await {
            Ok(page) if page.is_empty() => {}
            Ok(page) if page.len() == COUNTED_MAX => open.push(format!("{COUNTED_MAX} or more {state}")),
            Ok(page) => open.push(format!("{} {state}", page.len())),
            Err(error) => return Some(Finding::fail("open effects", error.to_string(), "oncegate ledger verify")),
        }
    }
    if open.is_empty() {
        return Some(Finding::ok("open effects", "none"));
    }
    Some(Finding::warn("open effects", open.join(", "), "oncegate ledger reconcile"))
}

/// Sequence numbers only rise, so the last one is found by halving.
async fn newest_stamp(ledger: &dyn Ledger) -> Result<u64, LedgerError> {
    let (mut some, mut none) = (1_u64, 2_u64);
    while !ledger.scan(none, 1).await?.is_empty() {
        some = none;
        none = none.saturating_mul(2);
    }
    while none - some > 1 {
        let middle = some + (none - some) / 2;
        if ledger.scan(middle, 1).await?.is_empty() { none = middle } else { some = middle }
    }
    let newest = ledger.scan(some.saturating_sub(NEWEST), usize::try_from(NEWEST).unwrap_or(usize::MAX) + 1).await?;
    Ok(newest.iter().filter_map(|record| record.event.at()).max().unwrap_or(0))
}

fn clock(newest: Result<u64, LedgerError>, now: u64) -> Finding {
    let shown = oncegate_sandbox::rfc3339;
    match newest {
        Err(error) => {
            Finding::fail("clock", format!("the newest stamp cannot be read: {error}"), "oncegate ledger verify")
        }
        Ok(_) if now < NOT_BEFORE_MS => Finding::warn(
            "clock",
            format!("{} is before this program was made", shown(now)),
            "set the clock; permissions and windows count on it",
        ),
        Ok(newest) if newest > now.saturating_add(CLOCK_SLACK_MS) => {
            let found = format!("{} is before the newest stamp in the ledger, {}", shown(now), shown(newest));
            Finding::warn("clock", found, "set the clock; no stored request is sent again while it is behind")
        }
        Ok(_) => Finding::ok("clock", shown(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_clock_behind_the_ledger_is_noticed() {
        let now = NOT_BEFORE_MS + 1_000_000;
        assert_eq!(clock(Ok(now + CLOCK_SLACK_MS), now).status, Status::Ok);
        assert_eq!(clock(Ok(now + CLOCK_SLACK_MS + 1), now).status, Status::Warn);
        assert_eq!(clock(Ok(0), 0).status, Status::Warn);
    }

    #[tokio::test]
    async fn the_newest_stamp_is_found_by_halving() {
        use oncegate_ledger::{Append, Event, Expect, StreamId};
        let ledger = oncegate_ledger::init("memory:").await.unwrap();
        for at in 1..=77_u64 {
            let mut id = [0; 16];
            id[0] = u8::try_from(at).unwrap();
            let event = Event::HostStarted { host: id, at };
            ledger.append(vec![Append::new(StreamId::host(id), Expect::Any, event)]).await.unwrap();
        }
        assert_eq!(newest_stamp(&*ledger).await.unwrap(), 77);
    }
}
