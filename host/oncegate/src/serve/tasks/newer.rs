//! Tasks of revision 2026-07-28: the extension `io.modelcontextprotocol/tasks`. The server decides which
//! call becomes a task, for clients whose request says that they take one.

use std::sync::Arc;
use std::time::Duration;

use oncegate_sandbox::Running;
use rmcp::RoleServer;
use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, JsonObject, Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::super::caller::{self, Caller};
use super::super::catalog::Entry;
use super::super::facts::Facts;
use super::super::server::{Server, Shared};
use super::asking::{self, Seeker};
use super::driver::{self, Began, Tool};
use super::view::{Status, View};
use super::{Asked, POLL_EVERY, millis, owner};

/// A call that could become a task.
pub(in super::super) struct Offer {
    /// After so long.
    pub(in super::super) after: Duration,
    pub(in super::super) arguments: Value,
    pub(in super::super) facts: Facts,
}

/// What to keep of a call, if its client takes tasks.
pub(in super::super) fn offer(
    shared: &Shared,
    context: &RequestContext<RoleServer>,
    arguments: &JsonObject,
    facts: &Facts,
) -> Option<Offer> {
    // What a connection once said does not count: each request says it.
    let takes = context.meta.client_capabilities().is_some_and(|client| client.supports_tasks());
    (takes && caller::is_newer(context) && shared.tasks.is_kept()).then(|| Offer {
        after: shared.tasks.after,
        arguments: Value::Object(arguments.clone()),
        facts: facts.clone(),
    })
}

/// Lets a call go on as a task; gives the guest back where that cannot be.
pub(in super::super) async fn adopt(
    shared: &Arc<Shared>,
    caller: &Caller,
    entry: &Entry,
    offer: Offer,
    running: Running,
) -> Result<CreateTaskResult, Box<Running>> {
    let asked = Asked { owner: owner(caller), entry, arguments: &offer.arguments, facts: &offer.facts, kept_for: None };
    let begun = match shared.tasks.begin(&shared.sandbox(), asked).await {
        Ok(begun) => begun,
        Err(why) => {
            tracing::info!(%why, "a long call is answered as without tasks");
            return Err(Box::new(running));
        }
    };
    let message = "It takes longer and goes on. Do not look for another way.".to_owned();
    let view = View::of(begun.id, &begun.task, begun.task.at, Status::Working, message);
    let tool = Tool {
        component: Arc::clone(&entry.component),
        function: entry.function.clone(),
        arguments: offer.arguments,
        key: caller.key.clone(),
    };
    driver::start(shared, begun, tool, Began::Running(Box::new(running)), None);
    Ok(CreateTaskResult::new(task(&view)))
}

/// `tasks/get`.
pub(in super::super) async fn get(
    server: &Server,
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<GetTaskResult, ErrorData> {
    let seeker = Seeker::of(server, context)?;
    let view = asking::look(&server.shared, &seeker, name).await?;
    let payload = match (&view.status, &view.answer) {
        (Status::Answered { .. }, Some(Value::Object(result))) => TaskPayload::Completed { result: result.clone() },
        (Status::Cancelled, _) => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    Ok(GetTaskResult::new(DetailedTask::new(task(&view), payload)))
}

/// `tasks/update`: nothing is ever asked of the client inside a task.
pub(in super::super) async fn update(
    server: &Server,
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    let seeker = Seeker::of(server, context)?;
    asking::look(&server.shared, &seeker, name).await.map(drop)
}

/// `tasks/cancel`: what is over stays as it is.
pub(in super::super) async fn cancel(
    server: &Server,
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    let seeker = Seeker::of(server, context)?;
    asking::cancel(&server.shared, &seeker, name).await.map(drop)
}

fn task(view: &View) -> Task {
    let status = match view.status {
        Status::Working => TaskStatus::Working,
        Status::Cancelled => TaskStatus::Cancelled,
        Status::Answered { .. } => TaskStatus::Completed,
    };
    Task::new(view.name(), status, view.created(), view.changed())
        .with_status_message(view.message.clone())
        .with_ttl_ms(view.kept_for())
        .with_poll_interval_ms(millis(POLL_EVERY))
}
