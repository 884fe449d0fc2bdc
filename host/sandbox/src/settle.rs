//! Finding out: the lookup that tells whether an effect exists, and what may be concluded from it.
//!
//! The contract that a row was dispatched under rules here, not today's. What cannot be found is
//! unknown; it is absent only under all the conditions of rule 4.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::{Contract, Matches, Operation, Resolved};
use oncegate_ledger::state::{Answer, Effect, Sender, StateTag};
use oncegate_ledger::{Dispatch, EffectsError, Event, SettleVerdict, StreamId, StreamKind};
use tokio::time::sleep;

use crate::attempt::{self, AttemptError, advance_or_race, decode};
use crate::host::{Book, Host};
use crate::limits::LOOKUP_BYTES_MAX;
use crate::lookup::{self, Found};
use crate::perform::completing;
use crate::policy;

/// Looks that must agree before something is absent.
const LOOKS_MIN: u32 = 2;
/// Between two looks, so that they do not see the same moment.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// How long a call may wait for `absent-after`; an operator's run waits as long as it takes.
const BRIEF_WAIT_MAX: Duration = Duration::from_secs(2);
/// Rows that are tried as a known object for the positive control.
const CONTROLS_MAX: usize = 5;
/// States in which a row has, or had, an object at the provider.
const WITH_RECEIPT: [StateTag; 6] =
    [StateTag::Done, StateTag::Issued, StateTag::Stranded, StateTag::Unknown, StateTag::Undone, StateTag::Superseded];
/// Rows looked at in one page.
const PAGE: usize = 256;
/// Steps in bringing one row up to date; each learns something new.
const STEPS_MAX: usize = 12;

/// How long the observer will wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A caller waits.
    Brief,
    /// An operator waits until it can be known.
    Long,
}

/// What a look came to.
pub(crate) enum Settled {
    /// The row has changed.
    Changed,
    /// It has not, and why.
    Open(String),
}

/// Everything a look needs.
struct Rule<'a> {
    host: &'a Host,
    book: &'a Book,
    key: [u8; 32],
    dispatch: &'a Dispatch,
    contract: Arc<Contract>,
    component: [u8; 32],
}

/// Looks for an effect that nobody knows of, and records what was found.
pub(crate) async fn settle(
    host: &Host,
    book: &Book,
    key: [u8; 32],
    row: &Effect,
    component: &[u8; 32],
    patience: Patience,
) -> Result<Settled, AttemptError> {
    let Some(dispatch) = row.dispatch.as_deref() else { return Ok(Settled::Open("nothing was sent".to_owned())) };
    host.learn_fences(book, row).await;
    let noted = note_stops(host, book, key, row).await?;
    let row = noted.as_ref().unwrap_or(row);
    if row.unclassified_attempt().is_some() {
        return Ok(Settled::Changed);
    }
    let contract = host.contract(book, dispatch.contract).await?;
    let rule = Rule { host, book, key, dispatch, contract, component: *component };
    let (matches, found) = match rule.look().await? {
        Ok(seen) => seen,
        Err(why) => return Ok(Settled::Open(why)),
    };
    let verdict = match matches {
        Matches::One { receipt, mismatched } => SettleVerdict::One { receipt, mismatched },
        Matches::Many { receipts } => SettleVerdict::Many { receipts },
        Matches::Undetermined { why } => return Ok(Settled::Open(why)),
        Matches::Absent => match rule.absent(row, patience).await? {
            Ok(verdict) => verdict,
            Err(why) => return Ok(Settled::Open(why)),
        },
    };
    let event = Event::Settled { at: (host.now)(), by: "settle rule".to_owned(), verdict, evidence: found.raw.into() };
    advance_or_race(book, key, row, event).await?;
    Ok(Settled::Changed)
}

/// Records the senders that have stopped since their attempts were given up, with what they stored of an
/// answer: what is absent can only be said once that is known of each. Gives the row as it then is, if it has changed.
async fn note_stops(host: &Host, book: &Book, key: [u8; 32], row: &Effect) -> Result<Option<Effect>, AttemptError> {
    let given_up = row.attempts.iter().filter(|attempt| attempt.ended.is_some() && !attempt.stopped && !attempt.proof);
    let mut noted = None;
    for attempt in given_up.filter(|attempt| host.sender_of(book, attempt) == Sender::Stopped) {
        let event = match attempt::evidence::as_answer(host, book, key, row, attempt.id).await? {
            Some(answer) => answer,
            None => {
                let why = "its sender has stopped".to_owned();
                Event::Lost { attempt: attempt.id, at: (host.now)(), why, sender_stopped: true }
            }
        };
        noted = Some(attempt::push(&book.effects, key, event).await?);
    }
    Ok(noted)
}

type Seen = Result<(Matches, Found), String>;

impl Rule<'_> {
    fn operation(&self) -> Result<&Operation, String> {
        self.contract
            .operations
            .get(&self.dispatch.operation)
            .ok_or_else(|| "its contract has no such operation".to_owned())
    }

    async fn look(&self) -> Result<Seen, AttemptError> {
        let stored = self.book.effects.ledger.load(&self.dispatch.fields).await.map_err(EffectsError::from)?;
        let resolved: Resolved = decode(&stored)?;
        let (first, found) = match self.ask(&resolved, &self.dispatch.downstream_key, &[]).await {
            Ok(seen) => seen,
            Err(why) => return Ok(Err(why)),
        };
        let operation = match self.operation() {
            Ok(operation) => operation,
            Err(why) => return Ok(Err(why)),
        };
        // A reference is this row's alone; anything else may be an object that another row owns.
        if operation.reference.is_some() || matches!(first, Matches::Absent | Matches::Undetermined { .. }) {
            return Ok(Ok((first, found)));
        }
        let taken = self.taken().await?;
        Ok(self.judge(&resolved, &self.dispatch.downstream_key, &taken, found))
    }

    /// Runs the settle lookup for one row's fields.
    async fn ask(&self, resolved: &Resolved, downstream_key: &str, taken: &[String]) -> Seen {
        let operation = self.operation()?;
        let settle = operation.settle.as_ref().ok_or("its contract has no settle rule")?;
        let lookup = self.contract.operations.get(&settle.operation).ok_or("its settle lookup does not exist")?;
        let values = oncegate_contract::settle_fields(operation, resolved, downstream_key);
        let context = BTreeMap::from([("tenant".to_owned(), self.dispatch.tenant.clone())]);
        let fields = oncegate_contract::resolve_host(lookup, &context, &values).map_err(|error| error.to_string())?;
        let grant =
            policy::decide(&self.host.policy, &self.contract, &self.component, &self.dispatch.tenant, &lookup.name)
                .map_err(|denied| format!("the settle lookup is not permitted: {}", denied.for_operator()))?;
        let found = lookup::send(self.host, lookup, &grant, &fields, &self.dispatch.tenant, LOOKUP_BYTES_MAX)
            .await
            .map_err(|stop| stop.to_string())?;
        self.judge(resolved, downstream_key, taken, found)
    }

    fn judge(&self, resolved: &Resolved, downstream_key: &str, taken: &[String], found: Found) -> Seen {
        let operation = self.operation()?;
        let lookup = operation
            .settle
            .as_ref()
            .and_then(|settle| self.contract.operations.get(&settle.operation))
            .ok_or("no settle lookup")?;
        let matches =
            oncegate_contract::match_candidates(operation, lookup, resolved, downstream_key, &found.answer, taken);
        Ok((matches, found))
    }

    /// Absent, under all of rule 4; or why that cannot be said.
    async fn absent(&self, row: &Effect, patience: Patience) -> Result<Result<SettleVerdict, String>, AttemptError> {
        let after = match self.operation() {
            Ok(operation) => operation.settle.as_ref().and_then(|settle| settle.absent_after),
            Err(why) => return Ok(Err(why)),
        };
        let Some(after) = after else {
            return Ok(Err("it was not found, and the contract does not say when that proves anything".to_owned()));
        };
        let Some(stopped_for) = self.host.stopped_for(self.book, row) else {
            return Ok(Err("it was not found, but its sender is not known to have stopped".to_owned()));
        };
        let wait = after.saturating_sub(stopped_for);
        if patience == Patience::Brief && wait > BRIEF_WAIT_MAX {
            return Ok(Err(format!("it was not found yet; that proves something in {} s", wait.as_secs() + 1)));
        }
        sleep(wait).await;
        for look in 0..LOOKS_MIN {
            if look > 0 {
                sleep(LOOK_PAUSE).await;
            }
            match self.look().await? {
                Ok((Matches::Absent, _)) => {}
                Ok(_) => return Ok(Err("it was not found at first, then it was".to_owned())),
                Err(why) => return Ok(Err(why)),
            }
        }
        let Some(control) = self.control().await? else {
            return Ok(Err("it was not found, but neither was any object that is known to exist".to_owned()));
        };
        let since = self.host.stopped_for(self.book, row).unwrap_or(stopped_for);
        let since_stop_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Ok(Ok(SettleVerdict::Absent { since_stop_ms, looks: LOOKS_MIN, control }))
    }

    /// A known object that the same lookup finds: without it, "not found" may mean "cannot see".
    async fn control(&self) -> Result<Option<String>, AttemptError> {
        let mut tried = 0;
        let mut after = None;
        while tried < CONTROLS_MAX {
            let page = self.page(StateTag::Done, after).await?;
            let Some(last) = page.last().copied() else { break };
            after = Some(last);
            for id in page {
                let Some(row) = self.sibling(id).await? else { continue };
                let (Some(dispatch), Some(receipt)) = (row.dispatch.as_deref(), &row.receipt) else { continue };
                tried += 1;
                let stored = self.book.effects.ledger.load(&dispatch.fields).await.map_err(EffectsError::from)?;
                let resolved: Resolved = decode(&stored)?;
                if let Ok((Matches::One { receipt: seen, .. }, _)) =
                    self.ask(&resolved, &dispatch.downstream_key, &[]).await
                    && seen == *receipt
                {
                    return Ok(Some(seen));
                }
                if tried >= CONTROLS_MAX {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Receipts of all other rows at this account, whoever's they are and whatever became of them: an
    /// object that is another row's is not this one's.
    async fn taken(&self) -> Result<Vec<String>, AttemptError> {
        let mut taken = Vec::new();
        for state in WITH_RECEIPT {
            let mut after = None;
            loop {
                let page = self.page(state, after).await?;
                let Some(last) = page.last().copied() else { break };
                after = Some(last);
                for id in page {
                    taken.extend(self.other(id).await?.and_then(|row| row.receipt));
                }
            }
        }
        Ok(taken)
    }

    async fn page(&self, state: StateTag, after: Option<StreamId>) -> Result<Vec<StreamId>, AttemptError> {
        Ok(self.book.effects.ledger.list(state, after, PAGE).await.map_err(EffectsError::from)?)
    }

    /// Another row at the same account.
    async fn other(&self, id: StreamId) -> Result<Option<Effect>, AttemptError> {
        if id.kind != StreamKind::Effect || id.id == self.key {
            return Ok(None);
        }
        let row = self.book.effects.get(id.id).await.map_err(EffectsError::from)?;
        Ok(row.filter(|row| row.dispatch.as_deref().is_some_and(|other| other.account == self.dispatch.account)))
    }

    /// Another row of the same operation: what the settle lookup can be tried on.
    async fn sibling(&self, id: StreamId) -> Result<Option<Effect>, AttemptError> {
        let same = |other: &Dispatch| {
            let ours = self.dispatch;
            (&other.tenant, &other.owner, &other.operation) == (&ours.tenant, &ours.owner, &ours.operation)
        };
        Ok(self.other(id).await?.filter(|row| row.dispatch.as_deref().is_some_and(same)))
    }
}

/// True for a row whose receipt rests on the provider's word alone (rule 7).
pub(crate) fn wants_confirmation(row: &Effect) -> bool {
    let rests = |dispatch: &Dispatch| dispatch.irreversible && !dispatch.provider_dedupes;
    row.state == StateTag::Done && !row.confirmed && row.dispatch.as_deref().is_some_and(rests)
}

/// Looks once for a receipt that was given; a look that does not find it changes nothing.
pub(crate) async fn confirm(host: Arc<Host>, key: [u8; 32], component: [u8; 32]) {
    let Ok(book) = host.book() else { return };
    if let Err(error) = confirm_row(&host, book, key, component).await {
        tracing::warn!(%error, "a receipt was not confirmed");
    }
}

async fn confirm_row(host: &Host, book: &Book, key: [u8; 32], component: [u8; 32]) -> Result<(), AttemptError> {
    let Some(row) = book.effects.get(key).await.map_err(EffectsError::from)? else { return Ok(()) };
    let (Some(dispatch), true) = (row.dispatch.as_deref(), wants_confirmation(&row)) else { return Ok(()) };
    let contract = host.contract(book, dispatch.contract).await?;
    let rule = Rule { host, book, key, dispatch, contract, component };
    let at = (host.now)();
    match rule.look().await? {
        Ok((Matches::One { receipt, .. }, _)) if Some(&receipt) == row.receipt.as_ref() => {
            advance_or_race(book, key, &row, Event::Confirmed { at, receipt }).await
        }
        Ok((Matches::One { .. } | Matches::Many { .. }, found)) => {
            let why = "the provider's list shows another object, or more than one".to_owned();
            advance_or_race(book, key, &row, Event::Diverged { at, why, evidence: found.raw.into() }).await
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Brings one row as far as it can be known: lost senders, stored answers, lookups, confirmation.
pub(crate) async fn refresh(
    host: &Arc<Host>,
    book: &Book,
    key: [u8; 32],
    component: Option<&[u8; 32]>,
    patience: Patience,
) -> Result<Option<Effect>, AttemptError> {
    refresh_saying(host, book, key, component, patience).await.map(|(row, _)| row)
}

/// As [`refresh`], and why a look did not settle the row.
pub(crate) async fn refresh_saying(
    host: &Arc<Host>,
    book: &Book,
    key: [u8; 32],
    component: Option<&[u8; 32]>,
    patience: Patience,
) -> Result<(Option<Effect>, Option<String>), AttemptError> {
    let mut settled = false;
    for _ in 0..STEPS_MAX {
        let Some(row) = book.effects.get(key).await.map_err(EffectsError::from)? else { return Ok((None, None)) };
        host.learn_fences(book, &row).await;
        if completing::strand(host, book, key, &row).await? {
            continue;
        }
        let sender = host.sender(book, &row);
        let component = component
            .copied()
            .or_else(|| row.dispatch.as_deref().map(|dispatch| dispatch.component))
            .unwrap_or_default();
        match oncegate_ledger::state::answer(Some(&row), &[], sender) {
            Answer::SenderLost => {
                attempt::lost(host, book, key, &row, sender == Sender::Stopped).await?;
            }
            Answer::Classify => {
                attempt::classify(host, book, key, row, None).await?;
            }
            Answer::Settle | Answer::Issued if !std::mem::replace(&mut settled, true) => {
                if let Settled::Open(why) = settle(host, book, key, &row, &component, patience).await? {
                    tracing::info!(label = row.label(), %why, "not settled");
                    return Ok((Some(row), Some(why)));
                }
            }
            Answer::Replay if patience == Patience::Long && wants_confirmation(&row) => {
                confirm_row(host, book, key, component).await?;
                return Ok((book.effects.get(key).await.map_err(EffectsError::from)?, None));
            }
            _ => return Ok((Some(row), None)),
        }
    }
    Ok((book.effects.get(key).await.map_err(EffectsError::from)?, None))
}
