//! Whether the ledger accepts effects, what is open in it, and whether the clock can be believed.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncegate_ledger::state::StateTag;
use oncegate_ledger::{Effects, Ledger, LedgerError, Role, StreamId, last_number};
use oncegate_sandbox::host::FROZEN_MANY;

use super::{Finding, privacy};
use crate::commands::settling::{Contracts, Settling};
use crate::home::{Home, is_database, now_ms};
use crate::print::hex;

/// The program is younger than this: an earlier clock is wrong.
const NOT_BEFORE_MS: u64 = 1_767_225_600_000;
/// How far two clocks, or one that is being adjusted, may be apart.
const CLOCK_SLACK_MS: u64 = 5_000;
/// Newest records whose stamps are looked at.
const NEWEST: u64 = 64;
/// Open rows that are counted; more are "so many or more".
const COUNTED_MAX: usize = 1_000;
/// States in which a row can be frozen.
const FREEZING: [StateTag; 6] =
    [StateTag::Unknown, StateTag::Done, StateTag::Planned, StateTag::NoEffect, StateTag::Issued, StateTag::Stranded];
/// States that somebody has to find out.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

pub(super) async fn check(home: &Home) -> Vec<Finding> {
    match oncegate_ledger::open(&home.ledger_url()).await {
        Ok(ledger) => {
            let ledger = home.with_keys(ledger).await;
            let mut found = vec![opened(&*ledger)];
            found.extend(privacy::check(home, &*ledger).await);
            found.extend(open_rows(&ledger).await);
            found.extend(frozen_rows(&ledger).await);
            found.push(clock(newest_stamp(&*ledger).await, now_ms()));
            found
        }
        Err(error) => vec![refused(&error), clock(Ok(0), now_ms())],
    }
}

fn opened(ledger: &dyn Ledger) -> Finding {
    let identity = ledger.identity();
    let role = match identity.role {
        Role::Owner if is_database(&identity.url) => "other hosts may use it too: oncegate ledger hosts",
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
        LedgerError::Behind { .. } => {
            "find the newest copy; what it lacks could happen again, which `oncegate ledger trust` accepts"
        }
        LedgerError::Damaged { .. } | LedgerError::Empty { .. } => {
            "oncegate ledger verify, and restore the newest copy"
        }
        LedgerError::Newer { .. } => "use the version of oncegate that wrote it",
        LedgerError::Full { .. } => "free space",
        _ => "see what is said; until then every effect is refused",
    };
    Finding::fail("ledger", error.to_string(), advice)
}

async fn open_rows(ledger: &Arc<dyn Ledger>) -> Vec<Finding> {
    let mut open = Vec::new();
    let mut stuck = Vec::new();
    for state in OPEN {
        let page = match ledger.list(state, None, COUNTED_MAX).await {
            Ok(page) => page,
            Err(error) => return vec![Finding::fail("open effects", error.to_string(), "oncegate ledger verify")],
        };
        let or_more = if page.len() == COUNTED_MAX { " or more" } else { "" };
        let never = if state == StateTag::Unknown { never_settled(ledger, &page).await } else { Vec::new() };
        if page.len() > never.len() {
            open.push(format!("{}{or_more} {state}", page.len() - never.len()));
        }
        stuck.extend(never);
    }
    let mut found = Vec::new();
    if !open.is_empty() {
        found.push(Finding::warn("open effects", open.join(", "), "oncegate ledger reconcile"));
    }
    found.extend(for_a_person(&stuck));
    if found.is_empty() { vec![Finding::ok("open effects", "none")] } else { found }
}

/// Frozen keys by account, of at most so many rows in each state; many at one account are an alarm.
async fn frozen_rows(ledger: &Arc<dyn Ledger>) -> Vec<Finding> {
    let effects = Effects::new(Arc::clone(ledger));
    let mut frozen: BTreeMap<String, usize> = BTreeMap::new();
    for state in FREEZING {
        let Ok(page) = ledger.list(state, None, COUNTED_MAX).await else { continue };
        for id in page {
            let Ok(Some(row)) = effects.get(id.id).await else { continue };
            if row.frozen {
                *frozen.entry(row.account().to_owned()).or_default() += 1;
            }
        }
    }
    frozen.iter().map(|(account, count)| frozen_at(account, *count)).collect()
}

fn frozen_at(account: &str, count: usize) -> Finding {
    let advice = "oncegate ledger list shows them; only an operator goes on";
    let alarm = if count >= FROZEN_MANY { "; so many are no accident: is what its contract states true?" } else { "" };
    Finding::warn("frozen keys", format!("{count} at the account {account}{alarm}"), advice)
}

/// Those of the unknown rows that no lookup will ever settle: label and why.
async fn never_settled(ledger: &Arc<dyn Ledger>, page: &[StreamId]) -> Vec<(String, &'static str)> {
    let effects = Effects::new(Arc::clone(ledger));
    let mut contracts = Contracts::of(Arc::clone(ledger));
    let mut never = Vec::new();
    for id in page {
        let Ok(Some(row)) = effects.get(id.id).await else { continue };
        if let Settling::Never(why) = contracts.settling(&row).await {
            never.push((row.label().to_owned(), why));
        }
    }
    never
}

fn for_a_person(stuck: &[(String, &'static str)]) -> Option<Finding> {
    let (label, why) = stuck.first()?;
    let found = match stuck.len() {
        1 => format!("1 unknown that no lookup can settle: {label} ({why})"),
        count => format!("{count} unknown that no lookup can settle, such as {label} ({why})"),
    };
    Some(Finding::warn("open effects", found, "a person settles it; the verb for that is not in this version"))
}

async fn newest_stamp(ledger: &dyn Ledger) -> Result<u64, LedgerError> {
    let last = last_number(ledger).await?;
    let newest = ledger.scan(last.saturating_sub(NEWEST), usize::try_from(NEWEST).unwrap_or(usize::MAX) + 1).await?;
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

    #[test]
    fn what_no_lookup_settles_is_for_a_person() {
        assert!(for_a_person(&[]).is_none());
        let one = ("leave-note 7".to_owned(), "its contract has no settle rule");
        let finding = for_a_person(&[one.clone(), one]).unwrap();
        assert_eq!(finding.status, Status::Warn);
        assert!(finding.found.starts_with("2 unknown") && finding.found.contains("leave-note 7"));
        assert!(finding.advice.starts_with("a person settles it"));
    }

    #[test]
    fn many_frozen_keys_are_an_alarm() {
        assert!(!frozen_at("pay-eu", FROZEN_MANY - 1).found.contains("no accident"));
        assert!(frozen_at("pay-eu", FROZEN_MANY).found.contains("10 at the account pay-eu; so many are no accident"));
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
