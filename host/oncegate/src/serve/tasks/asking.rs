//! Asking for a task: whose it is, what has become of it, and that it be stopped.

use std::sync::Arc;
use std::time::Duration;

use oncegate_ledger::tasks::Tasks;
use oncegate_ledger::{LedgerError, Task, TaskEnding, TaskOwner};
use oncegate_sandbox::outcome::{Code, Detail, NextAction, Outcome, Status as Said};
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde_json::Value;

use super::super::caller::Caller;
use super::super::facts;
use super::super::server::{Server, Shared, told};
use super::driver::{self, Began, Tool};
use super::view::{self, Status, View};
use super::{Begun, Local, owner};
use crate::home::now_ms;

/// How long whoever cancels waits for the guest to end and for that to be stored.
const CANCEL_WITHIN: Duration = Duration::from_secs(15);
/// How often a task that another process runs is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where a result has the outcome.
const OUTCOME: &str = "structuredContent";

pub(super) const UNSEEN: &str = "What it asked for before, also in another process until that hears of this, may have \
                                 happened; effect_status tells of it.";

const MISSING: &str = "there is no such task; what is over is dropped after its time";

/// Who asks.
pub(super) struct Seeker {
    pub(super) owner: TaskOwner,
    /// The tenant that the request says, where it says any.
    said: Option<String>,
    /// The tenant of the caller's token.
    token: Option<String>,
}

impl Seeker {
    pub(super) fn of(server: &Server, context: &RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        let refused = |refused: Box<Outcome>| ErrorData::invalid_params(refused.message, None);
        let caller = Caller::of(context, &server.shared.facts).map_err(refused)?;
        let sandbox = server.shared.sandbox();
        let facts = facts::join(&sandbox.policy().context, &caller.fixed, &caller.given).map_err(refused)?;
        Ok(Self { owner: owner(&caller), said: facts.get("tenant").cloned(), token: caller.tenant })
    }

    fn may_see(&self, task: &Task) -> bool {
        let of_its_tenant = self.said.as_ref().is_none_or(|said| task.begun.context.get("tenant") == Some(said));
        task.begun.owner == self.owner && of_its_tenant
    }
}

/// The task of that name, if the seeker may know of it.
async fn find(shared: &Shared, seeker: &Seeker, name: &str) -> Result<(Found, Task), ErrorData> {
    let missing = || ErrorData::invalid_params(MISSING, None);
    let (Some(_), Some(id)) = (&shared.tasks.store, view::read_name(name)) else { return Err(missing()) };
    let found = Found { id };
    let task = found.read(shared).await?.filter(|task| seeker.may_see(task)).ok_or_else(missing)?;
    Ok((found, task))
}

struct Found {
    id: [u8; 32],
}

impl Found {
    async fn read(&self, shared: &Shared) -> Result<Option<Task>, ErrorData> {
        store(shared)?.get(self.id, now_ms()).await.map_err(|error| unreadable(&error))
    }
}

fn store(shared: &Shared) -> Result<&Tasks, ErrorData> {
    shared.tasks.store.as_ref().ok_or_else(|| ErrorData::invalid_params(MISSING, None))
}

fn unreadable(error: &LedgerError) -> ErrorData {
    tracing::warn!(%error, "a task could not be read or written");
    ErrorData::internal_error("the ledger cannot be used now; ask again", None)
}

/// What has become of a task. One that no process runs any more goes on here.
pub(super) async fn look(shared: &Arc<Shared>, seeker: &Seeker, name: &str) -> Result<View, ErrorData> {
    let (found, task) = find(shared, seeker, name).await?;
    if task.ended.is_some() {
        return over(shared, found.id, &task).await;
    }
    let message = match go_on(shared, seeker, found.id, &task).await? {
        Runs::Here(local) => match local.asked() {
            0 => "It is being worked on.".to_owned(),
            asked => format!("It is being worked on; {asked} effects were asked for."),
        },
        Runs::Elsewhere => "Another process works on it.".to_owned(),
        Runs::Nowhere(why) => format!("{why} What it asked for before is told by effect_status."),
    };
    Ok(View::of(found.id, &task.begun, task.changed_at, Status::Working, message))
}

enum Runs {
    Here(Arc<Local>),
    Elsewhere,
    Nowhere(&'static str),
}

async fn go_on(shared: &Arc<Shared>, seeker: &Seeker, id: [u8; 32], task: &Task) -> Result<Runs, ErrorData> {
    if let Some(local) = shared.tasks.local(&id) {
        return Ok(Runs::Here(local));
    }
    let host = task.begun.host;
    if shared.sandbox().incarnation() != Some(host) && shared.sandbox().runs(host) {
        return Ok(Runs::Elsewhere);
    }
    if shared.closing.is_cancelled() {
        return Ok(Runs::Nowhere("This process is ending."));
    }
    let catalog = shared.catalog();
    let entry = catalog.tool(&task.begun.tool).filter(|entry| catalog.is_for(entry, seeker.token.as_deref()));
    let Some(entry) = entry else { return Ok(Runs::Nowhere("Its tool is not served here now.")) };
    // Its tool's name says nothing of whose effects they are.
    if entry.component.description.contract.component.name != task.begun.name {
        return Ok(Runs::Nowhere("Its tool's name is another component's here now."));
    }
    let arguments = store(shared)?.load(&task.begun.arguments).await.map_err(|error| unreadable(&error))?;
    let Ok(arguments) = serde_json::from_slice::<Value>(&arguments) else {
        return Ok(Runs::Nowhere("Its arguments cannot be read."));
    };
    let tool = Tool { component: Arc::clone(&entry.component), function: entry.function.clone(), arguments, key: None };
    let begun = Begun { id, task: task.begun.clone() };
    Ok(Runs::Here(driver::start(shared, begun, tool, Began::Before, None)))
}

/// A task that has ended.
async fn over(shared: &Shared, id: [u8; 32], task: &Task) -> Result<View, ErrorData> {
    let Some((ending, stored)) = &task.ended else {
        return Err(ErrorData::internal_error("the task has not ended", None));
    };
    let bytes = store(shared)?.load(stored).await.map_err(|error| unreadable(&error))?;
    let answer: Value = serde_json::from_slice(&bytes)
        .map_err(|_| ErrorData::internal_error("what the task was answered cannot be read", None))?;
    let message = match ending {
        TaskEnding::Answered => answer[OUTCOME]["message"].as_str().unwrap_or_default().to_owned(),
        TaskEnding::Cancelled => cancelled(&answer[OUTCOME]),
    };
    let status = status(*ending, answer["isError"] == true);
    let mut view = View::of(id, &task.begun, task.changed_at, status, message);
    view.answer = Some(answer);
    Ok(view)
}

pub(super) fn status(ending: TaskEnding, is_error: bool) -> Status {
    match ending {
        TaskEnding::Answered => Status::Answered { is_error },
        TaskEnding::Cancelled => Status::Cancelled,
    }
}

/// What was known when a task was cancelled, in a sentence.
pub(super) fn cancelled(outcome: &Value) -> String {
    let none = outcome["effects"].as_array().is_none_or(Vec::is_empty) && outcome["status"] != "pending";
    if none {
        "It was stopped before it asked for an effect.".to_owned()
    } else {
        "It was stopped. What it had asked for before is not taken back; effect_status tells of it.".to_owned()
    }
}

/// Stops a task; also returns whether it was over before.
pub(super) async fn cancel(shared: &Arc<Shared>, seeker: &Seeker, name: &str) -> Result<(View, bool), ErrorData> {
    let (found, task) = find(shared, seeker, name).await?;
    if task.ended.is_some() {
        return Ok((over(shared, found.id, &task).await?, true));
    }
    match shared.tasks.local(&found.id) {
        Some(local) => {
            local.cancel.cancel();
            let stopped = tokio::time::timeout(CANCEL_WITHIN, local.over.cancelled()).await;
            stopped.map_err(|_| ErrorData::internal_error("it is being stopped; ask again", None))?;
        }
        // Whoever runs it finds this and stops the guest.
        None => {
            let answer = serde_json::to_vec(&told(&unseen())?)
                .map_err(|_| ErrorData::internal_error("it was not stored", None))?;
            let ended = store(shared)?.end(found.id, TaskEnding::Cancelled, answer, now_ms()).await;
            ended.map_err(|error| unreadable(&error))?;
            // Somebody may have asked for it meanwhile, and so had it go on here.
            if let Some(local) = shared.tasks.local(&found.id) {
                local.cancel.cancel();
            }
        }
    }
    let task = found.read(shared).await?.ok_or_else(|| ErrorData::invalid_params(MISSING, None))?;
    if task.ended.is_none() {
        return Err(ErrorData::internal_error("it is being stopped; ask again", None));
    }
    let view = over(shared, found.id, &task).await?;
    let answered = matches!(view.status, Status::Answered { .. });
    Ok((view, answered))
}

/// The answer of a call of which nobody here saw all that it had asked for.
pub(super) fn unseen() -> Outcome {
    Outcome {
        status: Said::Pending,
        detail: Some(Detail::InProgress),
        code: None,
        next_action: NextAction::None,
        ..Outcome::refused(Code::ToolFailed, UNSEEN)
    }
}

/// Waits for the end of a task.
pub(super) async fn wait(
    shared: &Arc<Shared>,
    seeker: &Seeker,
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<View, ErrorData> {
    let busy = |_| ErrorData::internal_error("too many wait for tasks here; ask with tasks/get", None);
    let mut waits = None;
    loop {
        let view = look(shared, seeker, name).await?;
        if view.is_over() {
            return Ok(view);
        }
        if waits.is_none() {
            waits = Some(shared.tasks.waiters.try_acquire().map_err(busy)?);
        }
        let over = shared.tasks.local(&view.id).map(|local| local.over.clone()).unwrap_or_default();
        tokio::select! {
            () = over.cancelled() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("nobody waits any more", None)),
            () = shared.closing.cancelled() => {
                return Err(ErrorData::internal_error("the server is ending; the task is kept, ask again", None));
            }
        }
    }
}

/// All tasks of the seeker, oldest first, from behind one of them: at most so many, and whether there are more.
pub(super) async fn list(
    shared: &Arc<Shared>,
    seeker: &Seeker,
    after: Option<[u8; 32]>,
    most: usize,
) -> Result<(Vec<View>, bool), ErrorData> {
    let Some(store) = &shared.tasks.store else { return Ok((Vec::new(), false)) };
    let now = now_ms();
    let all = store.of(&seeker.owner, now).await.map_err(|error| unreadable(&error))?;
    let stale = || ErrorData::invalid_params("this cursor is none that was given out here, or it is too old", None);
    let from = match after {
        Some(after) => all.iter().position(|one| one.id == after).ok_or_else(stale)? + 1,
        None => 0,
    };
    let mut views = Vec::new();
    for one in all.iter().skip(from) {
        let task = store.get(one.id, now).await.map_err(|error| unreadable(&error))?;
        let Some(task) = task.filter(|task| seeker.may_see(task)) else { continue };
        if views.len() == most {
            return Ok((views, true));
        }
        views.push(match task.ended {
            Some(_) => over(shared, one.id, &task).await?,
            None => View::of(one.id, &task.begun, task.changed_at, Status::Working, "It is not over.".to_owned()),
        });
    }
    Ok((views, false))
}
