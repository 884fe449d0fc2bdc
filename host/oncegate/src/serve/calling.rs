//! One `tools/call`: it is answered before the client gives up, whatever the guest does.

use std::time::Duration;

use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{CallRequest, Ready, Running};
use rmcp::RoleServer;
use rmcp::model::{JsonObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::time::Instant;

use super::caller::Caller;
use super::catalog::Entry;
use super::server::Server;
use super::waiting::Met;
use super::{facts, logs};

/// How often a client hears of progress: people read it.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What came of a call.
pub(super) struct Called {
    pub(super) outcome: Outcome,
    /// The effects that a person has to approve first; none while the guest still runs.
    pub(super) awaiting: Vec<[u8; 32]>,
}

impl From<Outcome> for Called {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, awaiting: Vec::new() }
    }
}

/// Checks the arguments and who says what; nothing runs yet.
pub(super) async fn ready(
    server: &Server,
    entry: &Entry,
    arguments: JsonObject,
    caller: &Caller,
) -> Result<Ready, Box<Outcome>> {
    let sandbox = &server.shared.sandbox;
    let facts = facts::join(&sandbox.policy().context, &caller.fixed, &caller.given)?;
    let request = CallRequest { tool: entry.function.clone(), arguments: Value::Object(arguments), context: facts };
    sandbox.ready(&entry.component, request).await
}

/// Runs the tool, or answers from an identical call before.
pub(super) async fn call(
    server: &Server,
    entry: &Entry,
    ready: Ready,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Called {
    let shared = &server.shared;
    let limits = shared.sandbox.policy().limits;
    let identity = ready.identity();
    let within = caller.within.unwrap_or(limits.answer_within).min(limits.answer_within);
    let until = Instant::now() + within;
    let mut running = match shared.waiting.meet(&identity).await {
        Met::Answer(outcome) => return (*outcome).into(),
        Met::Running(running) => running,
        Met::Nothing => match shared.turns.take(within).await {
            Ok(turn) => ready.start_holding(turn),
            Err(not_begun) => return (*not_begun).into(),
        },
    };
    let wanted = wait(server, &mut running, until, caller.cancels, context).await;
    if running.is_over() {
        logs::send(server, context, &entry.tool.name, running.printed()).await;
    }
    let outcome = running.outcome().await;
    let awaiting = if running.is_over() { running.awaiting_approval() } else { Vec::new() };
    // Also a guest that runs on after a refusal: whoever ends the process has to find it.
    if wanted && (outcome.status == Status::Pending || !running.is_over()) {
        shared.waiting.keep(identity, running);
    }
    Called { outcome, awaiting }
}

/// Until the guest has ended, the time is over, or nobody wants the answer any more: then the guest is
/// stopped, and false is returned.
async fn wait(
    server: &Server,
    running: &mut Running,
    until: Instant,
    cancels: bool,
    context: &RequestContext<RoleServer>,
) -> bool {
    let token = context.meta.get_progress_token();
    let mut told = 0;
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
            _ = tick.tick(), if token.is_some() => told = progress(token.as_ref(), running, told, context).await,
        }
    }
    progress(token.as_ref(), running, told, context).await;
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
