//! One task under way: its guest runs, again where an answer says that it should, until there is an answer
//! that an agent would not be told to ask for again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oncegate_ledger::{TaskEnding, TaskOwner};
use oncegate_sandbox::outcome::{Code, Detail, NextAction, Outcome, Status};
use oncegate_sandbox::{CallRequest, ClientKey, Loaded, Running};
use rmcp::RoleServer;
use rmcp::model::{JsonObject, MetaObject, NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::facts::{self, Facts};
use super::super::measured;
use super::super::server::{Shared, told};
use super::super::turns::Whose;
use super::{Begun, Local, asking, older, view};
use crate::home::now_ms;

/// How often it is looked whether somebody else has ended the task, and how far the guest is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Before the same call is made again, where the answer does not say how long; doubled each time.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// The longest such pause.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long a guest that is stopped may take to end.
const STOP_WITHIN: Duration = Duration::from_secs(5);

const NOT_BEGUN: &str = "The task was cancelled before its tool ran; it asked for no effect.";

/// What runs for a task.
pub(super) struct Tool {
    pub(super) component: Arc<Loaded>,
    pub(super) function: String,
    pub(super) arguments: Value,
    /// The client's own key, while the process lives that was told it: what came of the call is checked against it.
    pub(super) key: Option<ClientKey>,
}

/// Who hears of a task while it goes on; only a connection that lasts carries that.
pub(super) struct Teller {
    pub(super) peer: Peer<RoleServer>,
    pub(super) token: Option<ProgressToken>,
}

/// Since when a task runs.
pub(super) enum Began {
    /// Its guest runs already.
    Running(Box<Running>),
    /// Its guest is to be started.
    Now,
    /// It ran before, elsewhere or here, and how far is not known.
    Before,
}

struct Job {
    shared: Arc<Shared>,
    begun: Begun,
    tool: Tool,
    local: Arc<Local>,
    teller: Option<Teller>,
    /// Nobody has run it before.
    is_new: bool,
    /// When it is dropped, whatever it has come to.
    until: Instant,
    /// When it is answered that nothing is settled, while there is time to read it.
    patient_until: Instant,
}

/// What one run came to.
enum Turn {
    Answer(Outcome),
    Cancelled(Outcome),
    /// Nothing is to be stored: somebody else did, its time is over, or the process ends.
    Left,
}

/// Runs a task, unless this process does already or ends.
pub(super) fn start(
    shared: &Arc<Shared>,
    begun: Begun,
    tool: Tool,
    began: Began,
    teller: Option<Teller>,
) -> Arc<Local> {
    let local = Arc::new(Local::of(&begun.task.owner));
    let id = begun.id;
    let other = {
        let mut all = shared.tasks.running();
        let other = all.get(&id).cloned();
        if other.is_none() {
            all.insert(id, Arc::clone(&local));
        }
        other
    };
    if let Some(other) = other {
        return other;
    }
    let left = Duration::from_millis(begun.task.until.saturating_sub(now_ms()));
    let now = Instant::now();
    let patient_until = now + left * 3 / 4;
    let job = Job {
        shared: Arc::clone(shared),
        begun,
        tool,
        local: Arc::clone(&local),
        teller,
        is_new: !matches!(began, Began::Before),
        until: now + left,
        patient_until,
    };
    let running = match began {
        Began::Running(running) => Some(*running),
        Began::Now | Began::Before => None,
    };
    shared.tasks.drivers.spawn(job.run(running));
    local
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.tasks.running().remove(&self.begun.id);
        self.local.over.cancel();
    }
}

impl Job {
    async fn run(self, mut running: Option<Running>) {
        let mut done = 0;
        let mut pause = AGAIN_AFTER;
        // Whether this run is the only one there ever was.
        let mut is_first = self.is_new;
        // Whoever asked for it may have read it just before it was ended.
        if !self.is_new && self.is_over_elsewhere().await {
            return;
        }
        loop {
            let turn = match running.take() {
                Some(running) => self.watch(running).await,
                None => self.again().await,
            };
            let outcome = match turn {
                Turn::Left => return,
                Turn::Cancelled(outcome) => {
                    let outcome = if tells_all(&outcome, is_first) { outcome } else { asking::unseen() };
                    return self.store(TaskEnding::Cancelled, &outcome).await;
                }
                Turn::Answer(outcome) if tells_all(&outcome, is_first) => outcome,
                // A guest that stopped early says nothing of what an earlier run had asked for.
                Turn::Answer(_) => Outcome { next_action: NextAction::CallAgain, ..asking::unseen() },
            };
            let is_unseen = outcome.message == asking::UNSEEN;
            let goes_on = goes_on(&outcome, &mut done) || is_unseen;
            if Instant::now() >= self.patient_until || !goes_on {
                return self.store(TaskEnding::Answered, &outcome).await;
            }
            is_first = false;
            let wait = outcome.retry_after.map_or(pause, |seconds| Duration::from_secs(seconds.into()));
            pause = (pause * 2).min(AGAIN_AFTER_MAX);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.local.cancel.cancelled() => return self.store(TaskEnding::Cancelled, &outcome).await,
                () = self.shared.closing.cancelled() => return,
            }
            if self.is_over_elsewhere().await {
                return;
            }
        }
    }

    /// Makes the very same call: what was done is answered with its receipt and is not done again.
    async fn again(&self) -> Turn {
        let request = CallRequest {
            tool: self.tool.function.clone(),
            arguments: self.tool.arguments.clone(),
            context: self.begun.task.context.clone(),
        };
        let sandbox = self.shared.sandbox();
        if let Err(refused) = facts::stand(&sandbox.policy().context, &self.fixed(), &request.context) {
            return Turn::Answer(*refused);
        }
        let ready = match sandbox.ready(&self.tool.component, request).await {
            Ok(ready) => ready.with_client_key(self.tool.key.as_ref()),
            Err(refused) => return Turn::Answer(*refused),
        };
        let whose = Whose::of(&ready);
        tokio::select! {
            turn = self.shared.turns.wait(&whose) => self.watch(turn.start(ready)).await,
            () = self.local.cancel.cancelled() => Turn::Cancelled(Outcome::refused(Code::ToolFailed, NOT_BEGUN)),
            () = self.shared.closing.cancelled() => Turn::Left,
            () = tokio::time::sleep_until(self.until) => Turn::Left,
        }
    }

    /// Facts that no request gave: those of the server and of its caller's token.
    fn fixed(&self) -> Facts {
        let TaskOwner { tenant, permit } = self.begun.task.owner.clone();
        let owner = [("tenant", tenant), ("permit", permit)].into_iter();
        let owner = owner.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.shared.facts.clone().into_iter().chain(owner).collect()
    }

    async fn watch(&self, mut running: Running) -> Turn {
        let mut tick = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                () = running.ended() => break,
                () = self.local.cancel.cancelled() => {
                    stop(&mut running).await;
                    return Turn::Cancelled(running.outcome().await);
                }
                () = self.shared.stop.cancelled() => {
                    stop(&mut running).await;
                    break;
                }
                // The guest goes on to its own limit, as when a client has left.
                () = tokio::time::sleep_until(self.until) => {
                    running.ended().await;
                    return Turn::Left;
                }
                _ = tick.tick() => {
                    self.tell(&running).await;
                    if self.is_over_elsewhere().await {
                        running.stop();
                        return Turn::Left;
                    }
                }
            }
        }
        self.tell(&running).await;
        let outcome = running.outcome().await;
        let is_done = matches!(outcome.status, Status::Done | Status::AlreadyDone);
        // A process that ends stops guests and refuses effects: that says nothing of the call.
        if self.shared.closing.is_cancelled() && !is_done { Turn::Left } else { Turn::Answer(outcome) }
    }

    /// Whether another process has ended it, or it is not kept any more.
    async fn is_over_elsewhere(&self) -> bool {
        let Some(store) = &self.shared.tasks.store else { return true };
        match store.get(self.begun.id, now_ms()).await {
            Ok(task) => task.is_none_or(|task| task.ended.is_some()),
            Err(error) => {
                tracing::debug!(%error, "a task could not be read");
                false
            }
        }
    }

    async fn store(&self, ending: TaskEnding, outcome: &Outcome) {
        measured::refused(&self.shared.sandbox(), outcome);
        let Some(store) = &self.shared.tasks.store else { return };
        let Some(bytes) = told(outcome).ok().and_then(|told| serde_json::to_vec(&told).ok()) else {
            tracing::error!("what a task was answered cannot be written");
            return;
        };
        loop {
            match store.end(self.begun.id, ending, bytes.clone(), now_ms()).await {
                Ok(_) => return self.tell_end(ending, outcome).await,
                Err(error) => tracing::warn!(%error, "the end of a task could not be stored"),
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN_AFTER) => {}
                () = tokio::time::sleep_until(self.until) => return,
                // The next process finds out.
                () = self.shared.stop.cancelled() => return,
            }
        }
    }

    /// Notes how many effects the guest has asked for, and tells whoever wants to know.
    async fn tell(&self, running: &Running) {
        let asked = running.effects_asked();
        let before = self.local.asked.fetch_max(asked, Ordering::Relaxed);
        let Some(Teller { peer, token: Some(token) }) = self.teller.as_ref().filter(|_| asked > before) else { return };
        // Counts of effects are far below the integers that a float has.
        let mut progress = ProgressNotificationParam::new(token.clone(), asked as f64);
        let task = json!({ "taskId": view::name(&self.begun.id) });
        let meta = JsonObject::from_iter([(older::RELATED_KEY.to_owned(), task)]);
        progress.meta = Some(NotificationMetaObject(MetaObject(meta)));
        if let Err(error) = peer.notify_progress(progress).await {
            tracing::debug!(%error, "progress was not told");
        }
    }

    async fn tell_end(&self, ending: TaskEnding, outcome: &Outcome) {
        let Some(Teller { peer, .. }) = &self.teller else { return };
        let status = asking::status(ending, outcome.is_error());
        let mut shown = view::View::of(self.begun.id, &self.begun.task, now_ms(), status, outcome.message.clone());
        if ending == TaskEnding::Cancelled {
            shown.message = asking::cancelled(&serde_json::to_value(outcome).unwrap_or_default());
        }
        if let Err(error) = peer.send_notification(older::changed(&shown)).await {
            tracing::debug!(%error, "the end of a task was not told");
        }
    }
}

/// Whether an outcome tells of all that the task can have asked for: of a later run, only if its guest
/// came as far as an effect. One that was refused before, such as under another policy, says nothing of what
/// an earlier run has done.
fn tells_all(outcome: &Outcome, is_first: bool) -> bool {
    let stopped_early = outcome.is_error();
    is_first || !stopped_early || !outcome.effects.is_empty()
}

/// Whether an agent would be told to ask again, and that could bring more.
fn goes_on(outcome: &Outcome, done: &mut usize) -> bool {
    let done_now = outcome.effects.iter().filter(|effect| effect.state == "done").count();
    let more = done_now > std::mem::replace(done, done_now);
    match (outcome.status, outcome.next_action) {
        // What the provider makes final in its own time is told as it is.
        (Status::Pending, NextAction::Wait) => outcome.detail != Some(Detail::Issued),
        (Status::Pending, NextAction::CallAgain) => more,
        _ => outcome.code == Some(Code::LedgerUnavailable),
    }
}

async fn stop(running: &mut Running) {
    running.stop();
    if tokio::time::timeout(STOP_WITHIN, running.ended()).await.is_err() {
        tracing::warn!("a guest that was stopped has not ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncegate_sandbox::outcome::EffectView;

    fn outcome(status: Status, detail: Option<Detail>, next_action: NextAction, done: usize) -> Outcome {
        let effect = EffectView {
            label: "refund R-1".to_owned(),
            state: "done".to_owned(),
            receipt: None,
            at: String::new(),
            unconfirmed: false,
        };
        Outcome {
            status,
            detail,
            code: None,
            next_action,
            effects: vec![effect; done],
            ..Outcome::refused(Code::Revoked, "")
        }
    }

    #[test]
    fn it_goes_on_while_that_can_bring_more() {
        let mut done = 0;
        let pending = |detail, next, done| outcome(Status::Pending, Some(detail), next, done);
        assert!(goes_on(&pending(Detail::InProgress, NextAction::Wait, 0), &mut done));
        assert!(goes_on(&pending(Detail::Unknown, NextAction::Wait, 0), &mut done));
        assert!(!goes_on(&pending(Detail::Unknown, NextAction::AskPerson, 0), &mut done));
        assert!(!goes_on(&pending(Detail::AwaitingApproval, NextAction::AskPerson, 0), &mut done));
        assert!(!goes_on(&pending(Detail::Issued, NextAction::Wait, 0), &mut done));
        assert!(goes_on(&pending(Detail::Incomplete, NextAction::CallAgain, 3), &mut done));
        assert!(goes_on(&pending(Detail::Incomplete, NextAction::CallAgain, 5), &mut done));
        assert!(!goes_on(&pending(Detail::Incomplete, NextAction::CallAgain, 5), &mut done));
        assert!(!goes_on(&outcome(Status::Done, None, NextAction::None, 6), &mut done));
        assert!(!goes_on(&outcome(Status::Failed, None, NextAction::CallAgain, 0), &mut done));
        assert!(goes_on(&Outcome::refused(Code::LedgerUnavailable, ""), &mut done));
        assert!(!goes_on(&Outcome::refused(Code::ToolFailed, ""), &mut done));
    }

    #[test]
    fn a_later_run_that_stopped_early_does_not_speak_for_an_earlier_one() {
        let failed = Outcome::refused(Code::ToolFailed, "");
        assert!(tells_all(&failed, true) && !tells_all(&failed, false));
        let withdrawn = Outcome::refused(Code::EffectNotPermitted, "");
        assert!(tells_all(&withdrawn, true) && !tells_all(&withdrawn, false));
        let asked = Outcome { effects: outcome(Status::Pending, None, NextAction::Wait, 1).effects, ..failed };
        assert!(tells_all(&asked, false));
    }
}
