//! One `tools/call`: it is answered before the client gives up, whatever the guest does.

use std::time::Duration;

use oncegate_sandbox::meter::Here;
use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{CallRequest, Ready, Running, Sandbox};
use rmcp::RoleServer;
use rmcp::model::{CreateTaskResult, JsonObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::time::Instant;

use super::caller::Caller;
use super::catalog::Entry;
use super::server::Server;
use super::tasks::newer::{self, Offer};
use super::turns::Whose;
use super::waiting::{Met, Name};
use super::{facts, logs};

/// How often a client hears of progress and of what is printed: people read it.
const TELL_EVERY: Duration = Duration::from_millis(250);

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

/// What a call came to.
pub(super) enum Ran {
    Answered(Called),
    /// It goes on, and the client asks for it later.
    Task(Box<CreateTaskResult>),
}

/// A call that has not begun.
pub(super) struct Prepared {
    pub(super) ready: Ready,
    /// Its client takes a task for it.
    offer: Option<Offer>,
}

/// Checks the arguments and who says what; nothing runs yet.
pub(super) async fn ready(
    server: &Server,
    sandbox: &Sandbox,
    entry: &Entry,
    arguments: JsonObject,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Result<Prepared, Box<Outcome>> {
    let facts = facts::join(&sandbox.policy().context, &caller.fixed, &caller.given)?;
    let offer = newer::offer(&server.shared, context, &arguments, &facts);
    let request = CallRequest { tool: entry.function.clone(), arguments: Value::Object(arguments), context: facts };
    let ready = sandbox.ready(&entry.component, request).await?;
    Ok(Prepared { ready: ready.with_client_key(caller.key.as_ref()), offer })
}

/// A call that runs.
struct Begun {
    name: Name,
    running: Running,
    at: Instant,
    /// When its client is answered.
    until: Instant,
    /// It waits for an identical call.
    _attached: Option<Here>,
}

/// Runs the tool, or answers from an identical call before; becomes a task where its client takes one.
pub(super) async fn call(
    server: &Server,
    sandbox: &Sandbox,
    entry: &Entry,
    prepared: Prepared,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Ran {
    let mut begun = match begin(server, sandbox, prepared.ready, caller).await {
        Ok(begun) => begun,
        Err(outcome) => return Ran::Answered((*outcome).into()),
    };
    let mut listener = Listener::new(server, &entry.tool.name, context);
    let mut wanted = true;
    if let Some(offer) = prepared.offer {
        let soon = begun.until.min(begun.at + offer.after);
        wanted = wait(server, &mut begun.running, soon, caller.cancels, &mut listener).await;
        if wanted && !begun.running.is_over() {
            begun.running = match newer::adopt(&server.shared, caller, entry, offer, begun.running).await {
                Ok(task) => return Ran::Task(Box::new(task)),
                Err(running) => *running,
            };
        }
    }
    Ran::Answered(finish(server, begun, wanted, caller, listener).await)
}

/// As [`call`], and never a task.
pub(super) async fn answered(
    server: &Server,
    sandbox: &Sandbox,
    entry: &Entry,
    ready: Ready,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Called {
    match begin(server, sandbox, ready, caller).await {
        Ok(begun) => {
            let listener = Listener::new(server, &entry.tool.name, context);
            finish(server, begun, true, caller, listener).await
        }
        Err(outcome) => (*outcome).into(),
    }
}

/// Starts the guest, or joins an identical call; an answer that was kept for it needs neither.
async fn begin(server: &Server, sandbox: &Sandbox, ready: Ready, caller: &Caller) -> Result<Begun, Box<Outcome>> {
    let shared = &server.shared;
    let limit = sandbox.policy().limits.answer_within;
    let within = caller.within.unwrap_or(limit).min(limit);
    let (name, at) = (Name::of(ready.identity(), sandbox), Instant::now());
    let mut attached = None;
    let running = match shared.waiting.meet(&name).await {
        Met::Answer(outcome) => return Err(outcome),
        Met::Running(running) => {
            attached = Some(sandbox.meter().attached());
            running
        }
        Met::Nothing => {
            if let Some(told) = ready.told_before().await {
                return Err(Box::new(told));
            }
            let turn = shared.turns.take(&Whose::of(&ready), within).await?;
            turn.start(ready)
        }
    };
    Ok(Begun { name, running, at, until: at + within, _attached: attached })
}

async fn finish(server: &Server, begun: Begun, wanted: bool, caller: &Caller, mut listener: Listener<'_>) -> Called {
    let Begun { name, mut running, until, .. } = begun;
    let wanted = wanted && wait(server, &mut running, until, caller.cancels, &mut listener).await;
    if running.is_over() {
        listener.end(&running).await;
    }
    let outcome = running.outcome().await;
    let awaiting = if running.is_over() { running.awaiting_approval() } else { Vec::new() };
    // Also a guest that runs on after a refusal: whoever ends the process has to find it.
    if wanted && (outcome.status == Status::Pending || !running.is_over()) {
        server.shared.waiting.keep(name, running);
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
    listener: &mut Listener<'_>,
) -> bool {
    // Not at once: there is nothing to tell yet, and a timer that is due wakes the thread that it is set on.
    let mut tick = tokio::time::interval_at(Instant::now() + TELL_EVERY, TELL_EVERY);
    loop {
        tokio::select! {
            biased;
            () = running.ended() => break,
            () = listener.context.ct.cancelled(), if cancels => {
                running.stop();
                return false;
            }
            () = server.shared.stop.cancelled() => {
                running.stop();
                return false;
            }
            () = tokio::time::sleep_until(until) => break,
            _ = tick.tick(), if listener.wants_something() => listener.tell(running).await,
        }
    }
    listener.tell(running).await;
    true
}

/// Who is told of a call while it runs.
struct Listener<'a> {
    context: &'a RequestContext<RoleServer>,
    tool: &'a str,
    /// Where the client wants to hear of progress.
    progress: Option<ProgressToken>,
    /// Effects that it has heard of.
    effects: usize,
    /// Whether it wants to hear what the guest prints.
    logs: bool,
    printed: logs::Told,
}

impl<'a> Listener<'a> {
    fn new(server: &Server, tool: &'a str, context: &'a RequestContext<RoleServer>) -> Self {
        let progress = context.meta.get_progress_token();
        let logs = logs::wanted(server, context);
        Self { context, tool, progress, effects: 0, logs, printed: logs::Told::default() }
    }

    fn wants_something(&self) -> bool {
        self.progress.is_some() || self.logs
    }

    /// Tells what is new.
    async fn tell(&mut self, running: &Running) {
        self.tell_progress(running.effects_asked()).await;
        if self.logs {
            logs::lines(self.context, self.tool, &running.printed().0, &mut self.printed).await;
        }
    }

    async fn tell_progress(&mut self, asked: usize) {
        let Some(token) = self.progress.as_ref().filter(|_| asked > self.effects) else { return };
        // Counts of effects are far below the integers that a float has.
        let progress = ProgressNotificationParam::new(token.clone(), asked as f64);
        if let Err(error) = self.context.peer.notify_progress(progress).await {
            tracing::debug!(%error, "progress was not told");
        }
        self.effects = asked;
    }

    /// Tells what is left of the output when the guest has ended.
    async fn end(&mut self, running: &Running) {
        if self.logs {
            logs::rest(self.context, self.tool, running.printed(), &mut self.printed).await;
        }
    }
}
