//! Steps a to d of an effect's life, and what an existing row answers.
//!
//! The key is derived before anything is asked of policy: a stored answer is given even where a new
//! send would not be allowed.

mod account;
mod approval;
mod bindings;
mod claim;
mod client_key;
pub(crate) mod completing;
mod ensure;
mod former;
mod gates;
mod identity;
mod look;
mod owner;
mod permit;
mod pins;
mod plan;
mod sequence;
mod undoing;

use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::{Answer, EffectKey, Fingerprint, Operation, Resolved, Role, Value};
use oncegate_ledger::state::{self, Answer as Heard, Effect, StateTag};
use oncegate_ledger::{EffectsError, LedgerError, StreamId};
use rand::Rng;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::attempt::{self, Draft, Ran};
use crate::call::{Asked, Call, Fetch, Reply, denied};
use crate::host::{Book, LISTEN_EVERY};
use crate::outcome::Detail;
use crate::settle::{self, Patience};
use crate::stop::Stop;
use crate::{replay, settle::Settled};

use former::Former;
pub(crate) use gates::Passage;
pub(crate) use identity::key_of;
pub(crate) use look::look;
pub(crate) use owner::is_of;
use pins::Pin;

/// Times a row is looked at again within one request; each time something was learnt.
const ROUNDS_MAX: usize = 12;
/// How often an effect that another process performs is looked at.
const ATTACH_POLL: Duration = Duration::from_millis(20);
/// The longest pause of one who waits for a process on another machine.
const ATTACH_POLL_MAX: Duration = Duration::from_millis(150);
/// Races that one request may lose, some 15 seconds: each was won by somebody.
const RACES_MAX: u32 = 150;
/// First pause after a lost race.
const RACE_PAUSE: Duration = Duration::from_millis(4);
/// Races after which the pause grows no more.
const RACES_GROWING: u32 = 25;
/// Undone epochs that are followed, each by a look at its row; more is a mistake.
pub(crate) const EPOCHS_MAX: u32 = 4_096;

/// One request for an effect, with everything that identifies it.
pub(crate) struct Wanted<'a> {
    pub(crate) call: &'a Arc<Call>,
    pub(crate) book: &'a Book,
    pub(crate) operation: &'a Operation,
    pub(crate) resolved: Resolved,
    pub(crate) fetches: Vec<Arc<Fetch>>,
    pub(crate) account: String,
    pub(crate) recipe: [u8; 32],
    pub(crate) epoch: u32,
    pub(crate) key: EffectKey,
    /// Values that the dispatch of this effect is the first to pin.
    pins: Vec<Pin>,
    /// The same call as earlier recipes resolve it.
    formers: Vec<Former>,
    /// Rows under keys of earlier recipes, as they were seen: none of them can have happened.
    passed: Vec<([u8; 32], u64)>,
    /// It is a row of an earlier recipe that is looked at: it may answer, and nothing is dispatched under
    /// its key.
    former: bool,
}

/// Performs an operation or answers from its row.
pub(crate) async fn perform(
    call: &Arc<Call>,
    name: &str,
    given: &[(String, Value)],
    asked: &mut Asked,
) -> Result<Reply, Stop> {
    let operation = call.operation(name, oncegate_contract::EffectClass::Keyed)?;
    let mut wanted = Wanted::identify(call, operation, given).await?;
    asked.key = Some(wanted.key.0);
    // Before any row answers: a key that another recipe happens to give is not the same effect.
    bindings::check_recipes(call, wanted.book, operation, &wanted.recipe).await?;
    if let Some(rehearsal) = call.plan.rehearsal() {
        return wanted.rehearse(rehearsal, asked).await;
    }
    for _ in 0..EPOCHS_MAX {
        match wanted.at_epoch(asked).await? {
            Next::Reply(reply) => return Ok(reply),
            Next::Epoch(epoch) => wanted.epoch = epoch,
            Next::Fresh(_) => return Err(Stop::InProgress),
            Next::Pinned => wanted = Wanted::identify(call, operation, given).await?,
        }
    }
    Err(Stop::Unsettled(Detail::Frozen))
}

/// What became of one key.
enum Next {
    Reply(Reply),
    /// It goes on at that epoch.
    Epoch(u32),
    /// Nothing can have happened under this key of an earlier recipe; its row is at this version.
    Fresh(u64),
    /// Another call has pinned a value meanwhile: the key is another.
    Pinned,
}

/// What is left of one request's patience.
struct Looks<'a> {
    /// Others are waited for until then.
    attach_until: Instant,
    /// A settle lookup was run.
    settled: &'a mut bool,
}

/// What one look at the row led to.
enum Step {
    /// The row has changed, or something was learnt: look again.
    Again,
    /// Another writer was first; what it wrote may not be readable yet.
    Raced,
    End(Next),
}

/// Grows, and differs between callers that lost the same race.
fn race_pause(races: u32) -> Duration {
    RACE_PAUSE.saturating_mul(races.min(RACES_GROWING)).mul_f64(rand::rng().random_range(0.5..1.5))
}

impl Wanted<'_> {
    async fn answer(&self, asked: &mut Asked) -> Result<Next, Stop> {
        let attach_until = Instant::now() + self.call.limits.attach_max;
        let mut settled = false;
        let mut races = 0;
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            let row = self.row().await?;
            match self.step(row, asked, attach_until, &mut settled).await? {
                Step::Again => rounds += 1,
                Step::Raced if races < RACES_MAX => {
                    races += 1;
                    tokio::time::sleep(race_pause(races)).await;
                }
                Step::Raced => break,
                Step::End(next) => return Ok(next),
            }
        }
        Err(Stop::InProgress)
    }

    pub(crate) async fn row(&self) -> Result<Option<Effect>, Stop> {
        self.book.effects.get(self.key.0).await.map_err(|error| ledger_stop(error.into()))
    }

    async fn step(
        &self,
        row: Option<Effect>,
        asked: &mut Asked,
        attach_until: Instant,
        settled: &mut bool,
    ) -> Result<Step, Stop> {
        let differing = self.differing(row.as_ref()).await?;
        if let Some(row) = &row {
            self.call.host.learn_fences(self.book, row).await;
        }
        let sender = row.as_ref().map_or(state::Sender::Stopped, |row| self.call.host.sender(self.book, row));
        let answer = match self.heard(state::answer(row.as_ref(), &differing, sender))? {
            Heard::NextEpoch { epoch } => return Ok(Step::End(Next::Epoch(epoch))),
            Heard::Dispatch { .. } | Heard::AwaitingApproval if self.former => {
                return Ok(Step::End(Next::Fresh(row.map_or(0, |row| row.version))));
            }
            other => other,
        };
        self.check_client_key().await?;
        self.call.count_effect(&self.key.0)?;
        // An answer that is stored and not judged yet has done what it will turn out to have done: before this call.
        if row.as_ref().is_none_or(|row| row.state != StateTag::Responded) {
            asked.before.get_or_insert(row.as_ref().is_some_and(|row| row.heard_state() == StateTag::Done));
        }
        // With what was before: the guest may be run again, and its effect is done by this call all the same.
        self.call.note(asked.clone());
        let mut looks = Looks { attach_until, settled };
        let Some(row) = row else { return self.dispatch(None, asked, &mut looks).await };
        self.call.rests_on(StreamId::effect(self.key.0), row.version);
        asked.reworded =
            row.generated().is_some_and(|first| first != oncegate_contract::generated_digest(&self.resolved));
        let dispatches = matches!(answer, Heard::Dispatch { .. } | Heard::AwaitingApproval);
        if !dispatches && !self.note_client_key().await? {
            return Ok(Step::Raced);
        }
        match answer {
            // What waits may have to be amended; a row that only waits goes no further than its gate.
            Heard::Dispatch { .. } | Heard::AwaitingApproval => self.dispatch(Some(&row), asked, &mut looks).await,
            Heard::Replay => Ok(Step::End(Next::Reply(self.replay(&row).await?))),
            Heard::InProgress => self.attach(&row, attach_until).await,
            Heard::SenderLost => self.lost(&row, sender).await,
            Heard::Classify => {
                attempt::classify(&self.call.host, self.book, self.key.0, row, None).await.map_err(attempt_stop)?;
                Ok(Step::Again)
            }
            Heard::Settle => self.settle(row, looks.settled).await,
            Heard::Issued => self.issued(row, looks.settled).await,
            Heard::Stranded => Err(Stop::Unsettled(Detail::Stranded)),
            Heard::Frozen => {
                self.call.host.saw_frozen(self.key.0, row.account());
                Err(Stop::Unsettled(Detail::Frozen))
            }
            Heard::Revoked | Heard::NextEpoch { .. } | Heard::Superseded { .. } => Err(Stop::Revoked),
            Heard::KeyReused(fields) => Err(Stop::KeyReused(fields)),
        }
    }

    /// What this call hears of a row that was superseded: the later epoch is for those whom the decision
    /// names, the others hear the earlier one.
    fn heard(&self, answer: Heard) -> Result<Heard, Stop> {
        match answer {
            Heard::Superseded { epoch, for_whom, .. } if self.call.is_named(&for_whom) => {
                Ok(Heard::NextEpoch { epoch })
            }
            Heard::Superseded { earlier, .. } => match *earlier {
                // The epoch after an undone one is not for everybody any more.
                Heard::NextEpoch { .. } => Err(Stop::Revoked),
                earlier => Ok(earlier),
            },
            other => Ok(other),
        }
    }

    /// Bound fields that differ from what the row was dispatched with.
    async fn differing(&self, row: Option<&Effect>) -> Result<Vec<String>, Stop> {
        let Some((salt, fields)) = row.and_then(Effect::fingerprint) else { return Ok(Vec::new()) };
        let mut differing = Fingerprint { salt: *salt, fields: fields.to_vec() }.differing(&self.resolved);
        let older = row.and_then(Effect::judged_by).filter(|(digest, _)| *digest != self.call.contract().digest());
        if let Some((digest, operation)) = older {
            // The row is judged by its own contract: a field that one did not have cannot differ.
            let contract = self.call.host.contract(self.book, digest).await.map_err(attempt_stop)?;
            let operation = contract.operations.get(operation);
            differing.retain(|name| operation.is_none_or(|operation| operation.field(name).is_some()));
        }
        if self.former {
            // What was bound and is part of the key now is compared by the key.
            let bound = |name: &str| self.operation.field(name).is_none_or(|field| field.role != Role::Key);
            differing.retain(|name| bound(name));
        }
        Ok(differing)
    }

    async fn replay(&self, row: &Effect) -> Result<Reply, Stop> {
        let answer =
            replay::answer(&self.call.host, self.book, self.key.0, row, self.operation).await.map_err(attempt_stop)?;
        Ok(self.first_step(answer, true, Some(true)))
    }

    /// Waits for what another call or process is doing, for a bounded time.
    async fn attach(&self, row: &Effect, until: Instant) -> Result<Step, Stop> {
        let _attached = self.call.host.meter.attached();
        let elsewhere = self.book.effects.ledger.incarnation().is_some();
        let (mut pause, mut listened) = (ATTACH_POLL, Instant::now());
        while Instant::now() < until {
            tokio::time::sleep(pause).await;
            // A database has many hosts whose callers wait: each asks ever more seldom.
            pause = if elsewhere { (pause + ATTACH_POLL / 2).min(ATTACH_POLL_MAX) } else { pause };
            if elsewhere && listened.elapsed() >= LISTEN_EVERY {
                self.call.host.learn_fences(self.book, row).await;
                listened = Instant::now();
            }
            let now = self.row().await?;
            let moved = now.as_ref().is_none_or(|now| now.version != row.version);
            let stopped = self.call.host.sender(self.book, row) != state::Sender::Running;
            if moved || stopped {
                return Ok(Step::Again);
            }
        }
        Err(Stop::InProgress)
    }

    async fn lost(&self, row: &Effect, sender: state::Sender) -> Result<Step, Stop> {
        attempt::lost(&self.call.host, self.book, self.key.0, row, sender == state::Sender::Stopped)
            .await
            .map_err(attempt_stop)?;
        Ok(Step::Again)
    }

    /// Finds out once per request; where the provider itself drops repeats, sends the stored request
    /// again.
    async fn settle(&self, row: Effect, settled: &mut bool) -> Result<Step, Stop> {
        let open = if row.state == StateTag::Issued { Detail::Issued } else { Detail::Unknown };
        if std::mem::replace(settled, true) {
            return Err(Stop::Unsettled(open));
        }
        let component = &self.call.component.description.digest;
        let outcome = settle::settle(&self.call.host, self.book, self.key.0, &row, component, Patience::Brief).await;
        match outcome {
            Ok(Settled::Changed) => Ok(Step::Again),
            Ok(Settled::Open(why)) => {
                tracing::info!(label = row.label(), %why, "not settled");
                self.resend(&row, open).await
            }
            Err(error) => Err(attempt_stop(error)),
        }
    }

    async fn resend(&self, row: &Effect, open: Detail) -> Result<Step, Stop> {
        // It may have happened: that is what the caller hears, not why it is not sent once more.
        let not_again = |why: &dyn std::fmt::Display| {
            tracing::info!(label = row.label(), %why, "not sent again");
            Stop::Unsettled(open)
        };
        let grant = self.call.grant(self.operation).map_err(|why| not_again(&why))?;
        let passage = match self.gates_again(&grant, row).await {
            Ok(passage) => passage,
            Err(stop @ Stop::KeyReused(_)) => return Err(stop),
            Err(stop) => return Err(not_again(&stop)),
        };
        let left = passage.send_for;
        let draft = attempt::again(&self.call.host, self.book, self.key.0, self.operation, &grant, row, passage).await;
        let draft = draft.map_err(|why| not_again(&why))?;
        match self.send(draft.within(left)).await {
            Err(stop @ Stop::PermitExceeded(_)) => Err(not_again(&stop)),
            other => other,
        }
    }

    async fn dispatch(&self, row: Option<&Effect>, asked: &mut Asked, looks: &mut Looks<'_>) -> Result<Step, Stop> {
        if self.pinned_meanwhile().await? {
            asked.before = None;
            self.call.forget(&self.key.0);
            return Ok(Step::End(Next::Pinned));
        }
        let grant = self.call.grant(self.operation).map_err(denied)?;
        if let Some(step) = self.ensure(&grant, row, asked).await? {
            return Ok(step);
        }
        let passage = match self.gates(&grant, row).await {
            Err(Stop::Claimed(other)) => return self.claimed(other, asked, looks.attach_until, looks.settled).await,
            other => other?,
        };
        if passage.asks {
            asked.reworded = false;
            if !self.note_client_key().await? {
                return Ok(Step::Raced);
            }
            return self.ask(&grant, row, passage.ties).await;
        }
        // What was approved goes as it was worded then; everything else goes as this call words it.
        asked.reworded &= passage.approved.is_some();
        let draft = attempt::fresh(self, &grant, row, passage).await?;
        self.send(draft).await
    }

    /// Steps e to h, in a task of its own; this future may be dropped, the task is not.
    async fn send(&self, draft: Draft) -> Result<Step, Stop> {
        let host = Arc::clone(&self.call.host);
        let running = self.call.host.tasks.spawn(attempt::run(host, draft).instrument(Span::current()));
        match running.await {
            Ok(Ok(Some(ran))) => self.ended(ran).await,
            Ok(Ok(None)) => Ok(Step::Raced),
            Ok(Err(error)) => Err(attempt_stop(error)),
            // It panicked; the row says how far it came.
            Err(_) => Ok(Step::Again),
        }
    }

    async fn ended(&self, ran: Ran) -> Result<Step, Stop> {
        let Ran { effect, answer } = ran;
        match effect.state {
            StateTag::Done => {
                let answer = self.told(&effect, answer).await?;
                Ok(Step::End(Next::Reply(self.first_step(answer, false, Some(true)))))
            }
            StateTag::NoEffect if effect.attempts.last().is_some_and(|attempt| attempt.responded) => {
                let answer = self.told(&effect, answer).await?;
                Ok(Step::End(Next::Reply(self.call.reply(self.operation, answer, false, Some(false)))))
            }
            StateTag::NoEffect => Err(Stop::NotSent("the provider could not be reached".to_owned())),
            StateTag::Revoked => Err(Stop::Revoked),
            StateTag::Issued if self.is_completed_here() => self.step_to_complete(&effect, false).await,
            StateTag::Issued => Err(Stop::Unsettled(Detail::Issued)),
            _ if effect.frozen => Err(Stop::Unsettled(Detail::Frozen)),
            // One settling look at once: most time-outs are answered by it.
            _ => Ok(Step::Again),
        }
    }
}

impl Wanted<'_> {
    /// The answer as its sender read it, else as it is stored.
    async fn told(&self, row: &Effect, answer: Option<Answer>) -> Result<Answer, Stop> {
        if let Some(answer) = answer {
            return Ok(answer);
        }
        replay::answer(&self.call.host, self.book, self.key.0, row, self.operation).await.map_err(attempt_stop)
    }
}

pub(crate) fn ledger_stop(error: EffectsError) -> Stop {
    tracing::error!(%error, "the ledger");
    Stop::LedgerUnavailable(error.to_string())
}

/// After something may have been sent, a ledger that fails leaves the effect unknown.
fn attempt_stop(error: attempt::AttemptError) -> Stop {
    match error {
        attempt::AttemptError::BeforeSending(EffectsError::Ledger(LedgerError::Condition { stream, why })) => {
            tracing::warn!(%stream, %why, "the permit has no room");
            Stop::PermitExceeded(permit::NO_ROOM)
        }
        attempt::AttemptError::BeforeSending(error) => ledger_stop(error),
        other => {
            tracing::error!(error = %other, "an attempt could not be recorded");
            Stop::Unsettled(Detail::Unknown)
        }
    }
}
