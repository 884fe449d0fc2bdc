//! One `tools/call`: it is answered before the client gives up, whatever the guest does.

use std::time::Duration;

use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{CallRequest, Running};
use rmcp::RoleServer;
use rmcp::model::{CreateTaskResult, JsonObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::time::Instant;

use super::caller::Caller;
use super::catalog::Entry;
use super::server::Server;
use super::tasks::newer;
use super::waiting::Met;
use super::{facts, logs};

/// How often a client hears of progress: people read it.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What a call came to.
pub(super) enum Called {
    Answered(Box<Outcome>),
    /// It goes on, and the client asks for it later.
    Task(Box<CreateTaskResult>),
}

/// Runs the tool, or answers from an identical call before.
pub(super) async fn call(
    server: &Server,
    entry: &Entry,
    arguments: JsonObject,
    caller: Caller,
    context: &RequestContext<RoleServer>,
) -> Called {
    match answered(server, entry, arguments, caller, context).await {
        Ok(called) => called,
        Err(refused) => Called::Answered(refused),
    }
}

async fn answered(
    server: &Server,
    entry: &Entry,
    arguments: JsonObject,
    caller: Caller,
    context: &RequestContext<RoleServer>,
) -> Result<Called, Box<Outcome>> {
    let shared = &server.shared;
    let limits = shared.sandbox.policy().limits;
    let facts = facts::join(&shared.sandbox.policy().context, &caller.fixed, &caller.given)?;
    let offer = newer::offer(shared, context, &arguments, &facts);
    let request = CallRequest { tool: entry.function.clone(), arguments: Value::Object(arguments), context: facts };
    let ready = shared.sandbox.ready(&entry.component, request).await?;
    let identity = ready.identity();
    let mut running = match shared.waiting.meet(&identity).await {
        Met::Answer(outcome) => return Ok(Called::Answered(outcome)),
        Met::Running(running) => running,
        Met::Nothing => ready.start(),
    };
    let now = Instant::now();
    let until = now + caller.within.unwrap_or(limits.answer_within).min(limits.answer_within);
    let mut told = 0;
    let mut wanted = true;
    if let Some(offer) = offer {
        wanted = wait(server, &mut running, until.min(now + offer.after), &mut told, caller.cancels, context).await;
        if wanted && !running.is_over() {
            running = match newer::adopt(shared, &caller, entry, offer, running).await {
                Ok(task) => return Ok(Called::Task(Box::new(task))),
                Err(running) => *running,
            };
        }
    }
    wanted = wanted && wait(server, &mut running, until, &mut told, caller.cancels, context).await;
    if running.is_over() {
        logs::send(server, context, &entry.tool.name, running.printed()).await;
    }
    let outcome = running.outcome().await;
    // Also a guest that runs on after a refusal: whoever ends the process has to find it.
    if wanted && (outcome.status == Status::Pending || !running.is_over()) {
        shared.waiting.keep(identity, running);
    }
    Ok(Called::Answered(Box::new(outcome)))
}

/// Until the guest has ended, the time is over, or nobody wants the answer any more: then the guest is
/// stopped, and false is returned.
async fn wait(
    server: &Server,
    running: &mut Running,
    until: Instant,
    told: &mut usize,
    cancels: bool,
    context: &RequestContext<RoleServer>,
) -> bool {
    let token = context.meta.get_progress_token();
    let mut tick = tokio::time::interval(PROGRESS_EVERY);
    loop {
        tokio::select! {
            biased;
            () = running.ended() => break,
            () = context.ct.cancelled(), if cancels => {
                running.stop();
                return false;
            }
            () = server.shared.stop.cancelled() => {
                running.stop();
                return false;
            }
            () = tokio::time::sleep_until(until) => break,
            _ = tick.tick(), if token.is_some() => *told = progress(token.as_ref(), running, *told, context).await,
        }
    }
    *told = progress(token.as_ref(), running, *told, context).await;
    true
}

/// Tells how many effects the guest has asked for, if that has changed.
async fn progress(
    token: Option<&ProgressToken>,
    running: &Running,
    told: usize,
    context: &RequestContext<RoleServer>,
) -> usize {
    let asked = running.effects_asked();
    let Some(token) = token.filter(|_| asked > told) else { return told };
    // Counts of effects are far below the integers that a float has.
    let progress = ProgressNotificationParam::new(token.clone(), asked as f64);
    if let Err(error) = context.peer.notify_progress(progress).await {
        tracing::debug!(%error, "progress was not told");
    }
    asked
}
